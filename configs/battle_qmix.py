"""QMIX in minding/Battle-v0: three riflemen against three that follow a script.

The target is 90 % of the battles won. On this map, random play wins none, and a hand-coded controller wins 93 %.
"""

from easydict import EasyDict

main_config = EasyDict(
    # Without a victory no more than 8.6 of 20 can be earned.
    run=dict(max_env_step=300_000, target=18.9),
    env=dict(env_id="minding/Battle-v0", env_kwargs=dict(map_name="3v3")),
    policy=dict(
        type="qmix",
        model=dict(normalize_obs=False),
        learn=dict(anneal_lr=False, td_lambda=0.0),
        eval=dict(freq=30_000, n_episode=40),
    ),
)

proof = dict(seeds=3)
