"""PPO with ICM on MountainCar-v0: every step costs 1, and random play does not reach the top."""

from minding.configs import load_preset

main_config = load_preset("mountaincar_ppo_rnd")
del main_config.policy.other["rnd"]
main_config.policy.other.update(icm=dict(weight=1.0, learning_rate=1e-4))

proof = dict(seeds=2)
