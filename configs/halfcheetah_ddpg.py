"""DDPG on HalfCheetah-v5: run, six continuous torques (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=1_000_000, metrics_freq=5_000),
    env=dict(env_id="HalfCheetah-v5", collector_env_num=1),
    policy=dict(
        type="ddpg",
        # Random steps, noise and raw observations of Tianshou's benchmark.
        model=dict(normalize_obs=False),
        learn=dict(warmup=25_000, update_per_collect=1),
        collect=dict(n_sample=1, random_steps=25_000, noise=dict(kind="gaussian", sigma=0.1)),
        eval=dict(freq=20_000),
    ),
)

proof = dict(seeds=3)
