"""Dreamer on Pendulum-v1: swing a pendulum up and hold it, learned in imagination.

Seeds 0 to 2 first reached the target after 10k, 7.5k and 5k steps; their final evaluations were -143.9, -210.3 (below
the target) and -160.0.
"""

from minding.configs import load_preset

main_config = load_preset("cartpole_dreamer")
main_config.run.update(max_env_step=15_000, target=-200.0)
main_config.env.env_id = "Pendulum-v1"

proof = dict(seeds=3)
