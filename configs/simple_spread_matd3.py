"""MATD3 on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

Expected: an evaluation mean of at least -55 within 40k environment steps, half of the way from random play, -79, to a
hand-coded controller, -31; `simple_spread_maddpg` has the goal of a longer run.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_masac")
main_config.policy.type = "matd3"
