"""QR-DQN on LunarLander-v3: land between the flags (extra box2d)."""

from minding.configs import load_preset

# With half the learning rate and tau of 0.005 three of five seeds reach 200.
main_config = load_preset("lunarlander_dqn")
main_config.policy.type = "qrdqn"
