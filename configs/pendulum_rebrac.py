"""ReBRAC on Pendulum-v1, TD3+BC with its switches: a penalty in the target, layer normalization and three layers.

The data are those of `pendulum_td3_bc`; seeds 0 to 2 ended at -164.5, -166.8 and -171.3.
"""

from minding.configs import load_preset

main_config = load_preset("pendulum_td3_bc")
main_config.policy.model.update(hidden=[256, 256, 256], norm="critics")
# beta_1 = beta_2 = 0.1; actions are single numbers. With beta_2 = 0.01 one seed of three ended at -349.
main_config.policy.update(learn=dict(alpha=10.0, critic_penalty=0.1))

_medium = dict(preset="pendulum_sac", env_step=3_250, steps=10_000)
proof = dict(seeds=3, recorded=(_medium, dict(preset="pendulum_sac", steps=10_000)))
