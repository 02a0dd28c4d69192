"""COMA in minding/Battle-v0: three riflemen against three that follow a script.

The target is 90 % of the battles won. On this map, random play wins none, and a hand-coded controller wins 93 %.
"""

from minding.configs import load_preset

main_config = load_preset("battle_mappo")
main_config.policy.update(type="coma", model={}, learn={}, collect=dict(n_sample=800))

proof = dict(seeds=3)
