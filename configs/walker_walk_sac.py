"""SAC on walker-walk of DeepMind Control, from states: walk upright, six continuous torques (extra dmc).

The target has not been measured yet.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, metrics_freq=5_000, target=900.0),
    # One vector: orientations, height and velocities.
    env=dict(env_id="dm_control/walker-walk-v0", wrappers=["flatten"], collector_env_num=1),
    policy=dict(
        type="sac",
        learn=dict(warmup=5_000, update_per_collect=1),
        collect=dict(n_sample=1, random_steps=5_000),
        eval=dict(freq=20_000),
    ),
)

proof = dict(seeds=3)
