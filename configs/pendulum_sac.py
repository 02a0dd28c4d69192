"""SAC on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=15_000, target=-200.0),
    env=dict(env_id="Pendulum-v1", collector_env_num=1),
    policy=dict(
        type="sac",
        model=dict(normalize_obs=False),
        learn=dict(update_per_collect=1),
        collect=dict(n_sample=1, random_steps=1_000),
        eval=dict(freq=2_500, n_episode=20),
        other=dict(buffer_size=50_000),
    ),
)
