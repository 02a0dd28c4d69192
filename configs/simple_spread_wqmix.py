"""WQMIX on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

Expected: an evaluation mean of at least -55 within 100k environment steps, half of the way from random play, -79, to a
hand-coded controller, -31.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_qmix")
main_config.run.update(max_env_step=100_000, target=-55.0)
main_config.policy.type = "wqmix"

proof = dict(seeds=1)
