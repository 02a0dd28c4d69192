"""SAC on HalfCheetah-v5: run, six continuous torques (extra mujoco).

Expected: an evaluation mean of at least 9000 within 1M environment steps (a target: no run was that long).
After 300k steps, seeds 0 to 2 scored 8,141, 6,678 and 8,353.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=1_000_000, metrics_freq=5_000, target=9000.0),
    env=dict(env_id="HalfCheetah-v5", collector_env_num=1),
    policy=dict(
        type="sac",
        learn=dict(warmup=10_000, update_per_collect=1),
        collect=dict(n_sample=1, random_steps=10_000),
        eval=dict(freq=20_000),
    ),
)

proof = dict(target=None, seeds=3, env_step=300_000)
