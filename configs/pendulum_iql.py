"""IQL on Pendulum-v1: from random play.

The target is 90 % of the way from random play, -1170, to a trained policy, -136; seeds 0 to 2 ended at -201.2, -190.8
and -208.0.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=20_000, target=-239.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="iql",
        model=dict(normalize_obs=True),
        eval=dict(freq=2_000, n_episode=20),
        # minding data record --random --env Pendulum-v1 --steps 20000 --out data/pendulum_random
        other=dict(data="data/pendulum_random"),
    ),
)

proof = dict(seeds=3, recorded=(dict(steps=20_000),))
