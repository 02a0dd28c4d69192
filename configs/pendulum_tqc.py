"""TQC on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from minding.configs import load_preset

main_config = load_preset("pendulum_sac")
main_config.policy.type = "tqc"
main_config.policy.model.hidden = [64, 64]
main_config.policy.learn.learning_rate = 1e-3

proof = dict(seeds=3)
