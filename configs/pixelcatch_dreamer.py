"""Dreamer on minding/PixelCatch-v0: catch falling balls, from pixels, learned in imagination.

Seed 0 ended at 5.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=50_000, target=4.75),
    env=dict(env_id="minding/PixelCatch-v0", collector_env_num=4),
    policy=dict(
        type="dreamer",
        learn=dict(gamma=0.97),
        collect=dict(n_sample=16, random_steps=1_000),
        eval=dict(freq=5_000, n_episode=40),
        other=dict(buffer_size=50_000),
    ),
)

proof = dict(seeds=1)
