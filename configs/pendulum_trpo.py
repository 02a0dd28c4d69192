"""TRPO on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000, target=-250.0),
    env=dict(env_id="Pendulum-v1", normalize_reward=True, reward_gamma=0.9),
    policy=dict(
        type="trpo",
        model=dict(normalize_obs=True),
        # As in pendulum_ppo: a short horizon is enough and learns faster.
        learn=dict(gamma=0.9, max_kl=0.02),
        eval=dict(freq=20_000, n_episode=20),
    ),
)
