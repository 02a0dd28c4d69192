"""MAPPO in minding/Battle-v0 with five riflemen on each side: battle_mappo on another map.

The target is 90 % of the battles won. On this map, random play wins none, and a hand-coded controller wins 95 %.
"""

from minding.configs import load_preset

main_config = load_preset("battle_mappo")
# Without a victory no more than 9 of 20 can be earned.
main_config.run.target = 18.9
main_config.run.max_env_step = 500_000
main_config.env.env_kwargs.map_name = "5v5"

proof = dict(seeds=3)
