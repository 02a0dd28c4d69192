"""C51 on CartPole-v1: balance a pole on a cart."""

from minding.configs import load_preset

main_config = load_preset("cartpole_dqn")
main_config.policy.type = "c51"
# With a reward of 1 per step and gamma 0.99, no return exceeds 100.
main_config.policy.model.update(v_min=0.0, v_max=100.0)
