"""TD3 on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from minding.configs import load_preset

# One set of settings for SAC, TD3 and DDPG.
main_config = load_preset("pendulum_sac")
main_config.run.max_env_step = 20_000
main_config.policy.type = "td3"
