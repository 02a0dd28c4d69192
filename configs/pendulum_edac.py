"""EDAC on Pendulum-v1: from 10,000 steps each of a half-trained and a trained policy while exploring.

Expected: an evaluation mean of at least -291 within 10k gradient steps, 85 % of the way from random play, -1170, to a
trained policy, -136.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=10_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="edac",
        model=dict(hidden=[64, 64], normalize_obs=True),
        learn=dict(learning_rate=1e-3),
        eval=dict(n_episode=20),
        # The data of `pendulum_cql`.
        other=dict(data="data/pendulum_medium_expert_explored"),
    ),
)

_explored = dict(preset="pendulum_sac", steps=10_000, explore=True)
proof = dict(seeds=3, recorded=(dict(_explored, env_step=3_250), _explored))
