"""PPO on Ant-v5: walk on four legs, eight continuous torques, no contact forces observed (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from minding.configs import load_preset

main_config = load_preset("hopper_ppo")
main_config.env.env_id = "Ant-v5"
# As in the environment of the published scores, where contact forces were always 0.
main_config.env["env_kwargs"] = dict(include_cfrc_ext_in_observation=False)
