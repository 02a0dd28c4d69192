"""EDAC on Pendulum-v1: from 20,000 steps of random play.

The target is 85 % of the way from random play, -1170, to a trained policy, -136.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=4_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="edac",
        model=dict(hidden=[64, 64], normalize_obs=True, n_critics=4),
        learn=dict(learning_rate=1e-3, batch_size=128),
        eval=dict(n_episode=20),
        # minding data record --random --env Pendulum-v1 --steps 20000 --out data/pendulum_random
        other=dict(data="data/pendulum_random"),
    ),
)

proof = dict(seeds=3, recorded=(dict(steps=20_000),))
