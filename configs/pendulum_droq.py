"""DroQ on Pendulum-v1: swing a pendulum up and hold it, REDQ's steps with two critics that drop units."""

from minding.configs import load_preset

main_config = load_preset("pendulum_redq")
# Hiraoka et al., 2021, https://arxiv.org/abs/2110.02034, section 3 and appendix: the rate for small tasks.
main_config.policy.model.update(n_critics=2, norm="critics", dropout=0.01)

proof = dict(seeds=3)
