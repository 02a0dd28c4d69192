"""A3C on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 500k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_a3c",
    run=dict(max_env_step=500_000),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="a3c",
        learn=dict(learning_rate=1e-3),
        eval=dict(freq=20_000, n_episode=20),
    ),
)
