"""QR-DQN on CartPole-v1: balance a pole on a cart."""

from minding.configs import load_preset

main_config = load_preset("cartpole_iqn")
main_config.policy.type = "qrdqn"
# The returns of this task hardly vary: few quantiles are enough.
main_config.policy.model.n_quantiles = 16
