"""A2C on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, target=-250.0),
    env=dict(env_id="Pendulum-v1", normalize_reward=True, reward_gamma=0.9),
    policy=dict(
        type="a2c",
        model=dict(normalize_obs=True),
        # The pendulum falls within a second: a short horizon is enough and learns faster. With Adam, or with advantages
        # normalized within 40 rows, it never learns to swing up.
        learn=dict(learning_rate=2e-3, gamma=0.9, gae_lambda=0.95, entropy_weight=0.0),
        eval=dict(freq=25_000, n_episode=20),
    ),
)
