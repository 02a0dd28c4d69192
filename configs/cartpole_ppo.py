"""PPO on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 100k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="ppo",
        # The observations are of the order of one as they are.
        model=dict(normalize_obs=False),
        # Few large minibatches and a rate that ends at 0: fewest environment steps to a steady 500.
        learn=dict(learning_rate=1e-3, anneal_lr=True, n_minibatch=2, gamma=0.98, gae_lambda=0.9),
        collect=dict(n_sample=512),
        eval=dict(n_episode=20),
    ),
)
