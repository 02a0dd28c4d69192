"""REDQ on Pendulum-v1: swing a pendulum up and hold it with few environment steps, 20 gradient steps for each."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=5_000, target=-200.0),
    env=dict(env_id="Pendulum-v1", collector_env_num=1),
    policy=dict(
        type="redq",
        model=dict(hidden=[64, 64], normalize_obs=False),
        learn=dict(learning_rate=1e-3, update_per_collect=20, warmup=500),
        collect=dict(n_sample=1, random_steps=500),
        eval=dict(freq=1_000, n_episode=20),
        other=dict(buffer_size=50_000),
    ),
)

proof = dict(seeds=3)
