"""SAC on HalfCheetah-v5: run, six continuous torques (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=1_000_000, metrics_freq=5_000),
    env=dict(env_id="HalfCheetah-v5", collector_env_num=1),
    policy=dict(
        type="sac",
        # Temperature and raw observations of Tianshou's benchmark.
        model=dict(normalize_obs=False),
        learn=dict(auto_alpha=False, alpha=0.2, warmup=10_000, update_per_collect=1),
        collect=dict(n_sample=1, random_steps=10_000),
        eval=dict(freq=20_000),
    ),
)

proof = dict(seeds=3)
