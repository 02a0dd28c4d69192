"""MASAC on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is 80 % of the way from random play, -79, to the mean of `simple_spread_mappo`, -27.6; the return is the sum
over the agents.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_maddpg")
main_config.run.update(max_env_step=200_000, target=-37.9)
main_config.policy.type = "masac"
# Half of the rows, since a gradient step takes twice as long as one of MADDPG.
main_config.policy.learn.batch_size = 128

proof = dict(seeds=1)
