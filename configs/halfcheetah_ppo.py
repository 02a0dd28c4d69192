"""PPO on HalfCheetah-v5: run, six continuous torques (extra mujoco).

Expected: an evaluation mean of at least 3000 within 1M environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=3_000_000, target=3000.0),
    # From one environment, two episodes a rollout, a run stayed at 1,600.
    env=dict(env_id="HalfCheetah-v5", collector_env_num=64, normalize_reward=True, reward_clip=10.0),
    policy=dict(
        type="ppo",
        model=dict(normalize_obs=True, log_std=-0.5),
        learn=dict(
            n_epoch=10,
            n_minibatch=32,
            entropy_weight=0.0,
        ),
        collect=dict(n_sample=2048),
        eval=dict(freq=100_000),
    ),
)

proof = dict(target=None, seeds=3, env_step=1_000_000)
