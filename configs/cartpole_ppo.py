"""PPO on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 100k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="ppo",
        # With a rate that ends at 0 what was learned stays. In lanes, rollouts are older by one update: at the default
        # rate, 3e-4, one of twenty seeds that shared each iteration between two collectors ended at 380, and without
        # entropy one of seven in lanes at 278.
        learn=dict(learning_rate=1e-3, anneal_lr=True, entropy_weight=0.01),
        eval=dict(n_episode=20),
    ),
)
