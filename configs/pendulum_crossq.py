"""CrossQ on Pendulum-v1: swing a pendulum up and hold it, one continuous torque."""

from minding.configs import load_preset

main_config = load_preset("pendulum_sac")
main_config.policy.update(type="crossq", model=dict(hidden=[64, 64]))

proof = dict(seeds=3)
