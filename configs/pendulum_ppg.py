"""PPG on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from minding.configs import load_preset

main_config = load_preset("pendulum_ppo")
main_config.policy.type = "ppg"
main_config.policy.learn.update(n_epoch=8, aux_freq=8)
del main_config.policy.learn["value_clip"]
