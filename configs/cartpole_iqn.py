"""IQN on CartPole-v1: balance a pole on a cart."""

from minding.configs import load_preset

main_config = load_preset("cartpole_dqn")
main_config.policy.type = "iqn"
del main_config.policy.model["normalize_obs"]
