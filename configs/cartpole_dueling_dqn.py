"""Dueling double DQN on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 60k environment steps.
"""

from minding.configs import load_preset

# All else is as in cartpole_dqn.
main_config = load_preset("cartpole_dqn")
main_config.policy.model.dueling = True
