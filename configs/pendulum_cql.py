"""CQL on Pendulum-v1: from all that SAC did while it learned, its replay set.

Expected: an evaluation mean of at least -291 within 10k gradient steps, 85 % of the way from random play, -1170, to a
trained policy, -136; seed 0 ended at -156.3, seeds 1 and 2 missed it at -359.0 and -513.5.
"""

from minding.engine import Config

main_config = Config(
    exp_name="pendulum_cql",
    run=dict(max_train_iter=10_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="cql",
        model=dict(hidden=[128, 128], normalize_obs=True),
        learn=dict(batch_size=128),
        eval=dict(n_episode=20),
        # What `offline_data_saver` writes in the chain of `pendulum_sac`.
        other=dict(data="data/pendulum_replay"),
    ),
)

proof = dict(seeds=3, recorded=(dict(preset="pendulum_sac"),))
