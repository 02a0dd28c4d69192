"""DDPG on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from minding.configs import load_preset

main_config = load_preset("pendulum_td3")
main_config.policy.type = "ddpg"
