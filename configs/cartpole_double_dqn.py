"""Double DQN on CartPole-v1: balance a pole on a cart; the same settings as `cartpole_dqn`.

Expected: an evaluation mean of at least 475 of 500 within 60k environment steps.
"""

from minding.configs import load_preset

# `learn.double` is on by default: cartpole_dqn has it, too.
main_config = load_preset("cartpole_dqn")
main_config.exp_name = "cartpole_double_dqn"

proof = dict(seeds=5)
