"""CQL on Pendulum-v1: from what a half-trained and a trained policy did, 10,000 steps each.

Expected: an evaluation mean of at least -291 within 3k gradient steps, 85 % of the way from random play, -1170, to the
trained policy, -136; seeds 0 to 2 ended at -213.7, -212.0 and -203.5.
"""

from minding.engine import Config

main_config = Config(
    exp_name="pendulum_cql",
    run=dict(max_train_iter=3_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="cql",
        model=dict(hidden=[128, 128], normalize_obs=True),
        learn=dict(batch_size=128),
        eval=dict(n_episode=20),
        # How these data are made is said in `pendulum_td3_bc`.
        other=dict(data="data/pendulum_medium_expert"),
    ),
)

_medium = dict(preset="pendulum_sac", env_step=3_250, steps=10_000)
proof = dict(seeds=3, recorded=(_medium, dict(preset="pendulum_sac", steps=10_000)))
