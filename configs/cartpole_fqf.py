"""FQF on CartPole-v1: balance a pole on a cart."""

from minding.configs import load_preset

main_config = load_preset("cartpole_iqn")
main_config.run.max_env_step = 25_000
main_config.policy.type = "fqf"
main_config.policy.model.n_fractions = 8

proof = dict(seeds=1)
