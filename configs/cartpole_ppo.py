"""PPO on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 100k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_ppo",
    run=dict(max_env_step=100_000),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="ppo",
        learn=dict(learning_rate=1e-3),
        eval=dict(n_episode=20),
    ),
)
