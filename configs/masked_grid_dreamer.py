"""Dreamer with action masks on minding/MaskedGrid-v0: visit every cell of a small grid once, learned in imagination.

Seed 0 ended at 14.8.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=20_000, target=14.0),
    env=dict(
        env_id="minding/MaskedGrid-v0",
        env_kwargs=dict(side=4),
        collector_env_num=16,
        info_keys=["action_mask", "success"],
    ),
    policy=dict(
        type="dreamer",
        learn=dict(length=12, batch_size=32, train_ratio=48.0, horizon=10),
        collect=dict(n_sample=16),
        eval=dict(freq=5000, n_episode=50),
    ),
)

proof = dict(seeds=1)
