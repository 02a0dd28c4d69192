"""Dreamer on walker-walk of DeepMind Control, from states: walk upright, six continuous torques (extra dmc).

Expected: its score after 200k environment steps is compared with SAC's (not measured yet).
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, metrics_freq=5_000),
    # One vector: orientations, height and velocities.
    env=dict(env_id="dm_control/walker-walk-v0", wrappers=["flatten"], collector_env_num=1),
    policy=dict(
        type="dreamer",
        learn=dict(warmup=5_000, gamma=0.997),
        collect=dict(random_steps=5_000),
        eval=dict(freq=20_000),
        other=dict(buffer_size=200_000),
    ),
)

proof = dict(seeds=1)
