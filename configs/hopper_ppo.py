"""PPO on Hopper-v5: hop on one leg, three continuous torques (extra mujoco).

Expected: an evaluation mean of at least 2000 within 1M environment steps (a target, not measured yet).
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=1_000_000, target=2000.0),
    # As halfcheetah_ppo.
    env=dict(env_id="Hopper-v5", collector_env_num=1, normalize_reward=True, reward_clip=10.0),
    policy=dict(
        type="ppo",
        model=dict(normalize_obs=True),
        learn=dict(n_epoch=10, n_minibatch=32, entropy_weight=0.0),
        collect=dict(n_sample=2048),
        eval=dict(freq=50_000),
    ),
)

proof = None
