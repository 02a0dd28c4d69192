"""Double DQN on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 60k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_dqn",
    run=dict(max_env_step=60_000),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="dqn",
        learn=dict(update_per_collect=4),
        collect=dict(n_sample=8),
        eval=dict(freq=5_000, n_episode=20),
    ),
)
