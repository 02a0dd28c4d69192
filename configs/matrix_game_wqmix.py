"""WQMIX in the matrix game of the QTRAN paper: two agents earn 8 together, and lose 12 if only one of them tries.

The target is the best payoff; QMIX learns to earn 0.
"""

from minding.configs import load_preset

main_config = load_preset("matrix_game_qtran")
main_config.policy.type = "wqmix"

proof = dict(seeds=3)
