"""PPO on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 100k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="ppo",
        # Many passes over each rollout: fewest environment steps to a steady 500.
        learn=dict(
            learning_rate=1e-3,
            n_epoch=10,
            n_minibatch=2,
            gamma=0.98,
            gae_lambda=0.9,
            entropy_weight=0.0,
        ),
        collect=dict(n_sample=512),
        eval=dict(n_episode=20),
    ),
)
