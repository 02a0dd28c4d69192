"""SAC on Walker2d-v5: walk on two legs, six continuous torques (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from minding.configs import load_preset

# One set of settings for all tasks of MuJoCo.
main_config = load_preset("halfcheetah_sac")
main_config.env.env_id = "Walker2d-v5"

proof = dict(seeds=3)
