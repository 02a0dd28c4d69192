"""Double DQN with prioritized replay on CartPole-v1: balance a pole on a cart."""

from minding.configs import load_preset

# All else is as in cartpole_dqn.
main_config = load_preset("cartpole_dqn")
# Large errors are learned from more often, and the policy settles later.
main_config.run.max_env_step = 100_000
main_config.policy.other.update(replay="prioritized", priority=dict(beta_steps=50_000))
