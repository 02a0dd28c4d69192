"""MAPPO in minding/Battle-v0: three riflemen against three that follow a script.

The target is 90 % of the battles won. On this map, random play wins none, and a hand-coded controller wins 93 %.
"""

from easydict import EasyDict

main_config = EasyDict(
    # Without a victory no more than 8.6 of 20 can be earned.
    run=dict(max_env_step=300_000, target=18.9),
    env=dict(env_id="minding/Battle-v0", env_kwargs=dict(map_name="3v3"), collector_env_num=16),
    policy=dict(
        type="mappo",
        model=dict(hidden=[64, 64], normalize_obs=False),
        learn=dict(learning_rate=7e-4, n_epoch=10, n_minibatch=1),
        collect=dict(n_sample=1600),
        eval=dict(freq=30_000, n_episode=40, deterministic=True),
    ),
)

proof = dict(seeds=3)
