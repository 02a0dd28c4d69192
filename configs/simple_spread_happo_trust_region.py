"""HATRPO, HAPPO with a trust region, on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is 80 % of the way from random play, -79, to the mean of `simple_spread_mappo`, -27.6; the return is the sum
over the agents.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_happo")
main_config.run.max_env_step = 400_000
main_config.policy.learn.trust_region = True
# One step of each actor per rollout: shorter rollouts, in one minibatch.
del main_config.policy.learn.n_minibatch
main_config.policy.collect.n_sample = 800
