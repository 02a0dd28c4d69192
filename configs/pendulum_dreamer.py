"""Dreamer on Pendulum-v1: swing a pendulum up and hold it, learned in imagination.

Seeds 0 to 2 first reached the target after 10k, 7.5k and 5k steps; their final evaluations were -143.9, -210.3 (below
the target) and -160.0.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=15_000, target=-200.0),
    env=dict(env_id="Pendulum-v1", collector_env_num=1),
    policy=dict(
        type="dreamer",
        collect=dict(random_steps=1_000),
        eval=dict(freq=2_500, n_episode=20),
        other=dict(buffer_size=50_000),
    ),
)

proof = dict(seeds=3)
