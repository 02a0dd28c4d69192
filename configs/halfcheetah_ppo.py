"""PPO on HalfCheetah-v5: run, six continuous torques (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from minding.configs import load_preset

# Without normalized advantages, as in the benchmark of Tianshou: with them, one of five seeds stayed at 1,900.
main_config = load_preset("hopper_ppo")
main_config.env.env_id = "HalfCheetah-v5"
main_config.policy.learn.normalize_advantage = False
