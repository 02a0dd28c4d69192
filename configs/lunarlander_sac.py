"""SAC on LunarLander-v3 with continuous engines: land between the flags (extra box2d).

The target has not been measured yet.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, target=200.0),
    env=dict(env_id="LunarLander-v3", env_kwargs=dict(continuous=True)),
    policy=dict(
        type="sac",
        learn=dict(update_per_collect=16, warmup=5_000),
        collect=dict(n_sample=32, random_steps=5_000),
        eval=dict(freq=25_000, n_episode=20),
        other=dict(buffer_size=200_000),
    ),
)

proof = None
