"""Dueling double DQN on CartPole-v1: balance a pole on a cart."""

from minding.configs import load_preset

# All else is as in cartpole_dqn.
main_config = load_preset("cartpole_dqn")
main_config.policy.model.dueling = True
