"""Discrete SAC on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 60k environment steps (a target that seed 0
misses, with 326).
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_discrete_sac",
    run=dict(max_env_step=60_000),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="discrete_sac",
        model=dict(hidden=[128, 128]),
        # A share of 0.98 would keep the two actions about as likely as each other.
        learn=dict(
            learning_rate=1e-3,
            anneal_lr=True,
            batch_size=128,
            update_per_collect=32,
            nstep=3,
            tau=0.01,
            target_entropy_share=0.1,
        ),
        collect=dict(n_sample=64, random_steps=1_000),
        other=dict(buffer_size=60_000),
        eval=dict(freq=5_000, n_episode=20),
    ),
)

proof = dict(target=475.0)
