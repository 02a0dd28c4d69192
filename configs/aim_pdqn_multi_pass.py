"""P-DQN with multiple passes (MP-DQN) on Aim-v0 with a force for each direction, of which only the own one counts."""

from minding.configs import load_preset

# All else is as in aim_pdqn.
main_config = load_preset("aim_pdqn")
main_config.env.update(env_kwargs={"own_forces": True})
main_config.policy.model.multi_pass = True

proof = dict(seeds=3)
