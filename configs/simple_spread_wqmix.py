"""WQMIX on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is 80 % of the way from random play, -79, to the mean of `simple_spread_mappo`, -27.6.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_qmix")
main_config.run.update(max_env_step=300_000, target=-37.9)
main_config.policy.type = "wqmix"
# The default of 0.1 is for tasks where the best joint action is hard to find.
main_config.policy.learn.error_weight = 0.5

proof = dict(seeds=1)
