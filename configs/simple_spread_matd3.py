"""MATD3 on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

Expected: an evaluation mean of at least -43 within 200k environment steps, three quarters of the way from random play,
-79, to a hand-coded controller, -31; the return is the sum over the agents.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_masac")
main_config.run.target = -43.0
main_config.policy.type = "matd3"

proof = dict(seeds=1)
