"""COMA in minding/Battle-v0: three riflemen against three that follow a script.

Expected: at least 90 % of the battles won, an evaluation mean of at least 18.9 of 20, within 300k environment steps. On
this map, random play wins none, and a hand-coded controller wins 93 %.
"""

from minding.configs import load_preset

main_config = load_preset("battle_mappo")
main_config.policy.type = "coma"
main_config.policy.collect.n_sample = 800

proof = dict(seeds=3)
