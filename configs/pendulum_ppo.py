"""PPO on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, target=-250.0),
    env=dict(env_id="Pendulum-v1", reward_gamma=0.9),
    policy=dict(
        type="ppo",
        learn=dict(
            learning_rate=1e-3,
            n_minibatch=32,
            # The pendulum falls within a second: a short horizon is enough and learns faster.
            gamma=0.9,
            value_clip=True,
            anneal_lr=True,
        ),
        collect=dict(n_sample=2048),
        eval=dict(freq=20_000, n_episode=20),
    ),
)
