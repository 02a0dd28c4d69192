"""TD3 on HalfCheetah-v5: run, six continuous torques (extra mujoco).

Expected: an evaluation mean of at least 7000 within 1M environment steps (a target, not measured yet).
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=1_000_000, metrics_freq=5_000, target=7000.0),
    env=dict(env_id="HalfCheetah-v5", collector_env_num=1),
    policy=dict(
        type="td3",
        # The learning rate of the authors' later code.
        learn=dict(learning_rate=3e-4, warmup=10_000, update_per_collect=1),
        collect=dict(n_sample=1, random_steps=10_000),
        eval=dict(freq=20_000),
    ),
)

proof = dict(target=None, seeds=3, env_step=300_000)
