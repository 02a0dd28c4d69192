"""MATD3 on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is 80 % of the way from random play, -79, to the mean of `simple_spread_mappo`, -27.6; the return is the sum
over the agents.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_masac")
main_config.run.max_env_step = 250_000
main_config.policy.type = "matd3"
# The default of 2 halves the steps of actors and targets, of which there are few here.
main_config.policy.learn.policy_delay = 1

proof = dict(seeds=1)
