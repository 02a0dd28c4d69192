"""Double DQN with prioritized replay on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 100k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_dqn_per",
    run=dict(max_env_step=100_000),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="dqn",
        # As cartpole_dqn, over more steps: large errors are learned from more often, and the policy settles later.
        model=dict(hidden=[256, 256]),
        learn=dict(
            learning_rate=1.5e-3, anneal_lr=True, batch_size=64, update_per_collect=128, nstep=3, target=dict(freq=512)
        ),
        collect=dict(n_sample=256),
        other=dict(replay="prioritized", priority=dict(beta_steps=50_000), eps=dict(end=0.04, decay=8_000)),
        eval=dict(freq=5_000, n_episode=20),
    ),
)

proof = dict(target=475.0)
