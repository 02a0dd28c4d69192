"""PPO on Walker2d-v5: walk on two legs, six continuous torques (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from minding.configs import load_preset

main_config = load_preset("hopper_ppo")
main_config.env.env_id = "Walker2d-v5"
