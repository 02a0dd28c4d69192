"""Cal-QL on Pendulum-v1: CQL whose penalty stops at recorded returns, on the data of `pendulum_cql`.

Expected: an evaluation mean of at least -291 within 10k gradient steps, 85 % of the way from random play, -1170, to a
trained policy, -136.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=10_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="cql",
        model=dict(hidden=[128, 128], normalize_obs=True),
        learn=dict(batch_size=128, calibrated=True),
        eval=dict(n_episode=20),
        other=dict(data="data/pendulum_medium_expert_explored"),
    ),
)

_explored = dict(preset="pendulum_sac", steps=10_000, explore=True)
proof = dict(seeds=3, recorded=(dict(_explored, env_step=3_250), _explored))
