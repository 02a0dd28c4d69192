"""One-step actor-critic on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 400k environment steps (a target, not measured yet).
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_ac",
    run=dict(max_env_step=400_000),
    env=dict(env_id="CartPole-v1", normalize_reward=True, reward_gamma=0.98),
    policy=dict(
        type="ac",
        model=dict(normalize_obs=True),
        learn=dict(gamma=0.98),
        eval=dict(freq=20_000, n_episode=20),
    ),
)

proof = dict(target=475.0)
