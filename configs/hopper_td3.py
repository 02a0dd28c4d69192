"""TD3 on Hopper-v5: hop on one leg, three continuous torques (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from minding.configs import load_preset

# One set of settings for all tasks of MuJoCo.
main_config = load_preset("halfcheetah_td3")
main_config.env.env_id = "Hopper-v5"

proof = dict(seeds=3)
