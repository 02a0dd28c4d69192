"""PPO with a gated transformer on minding/RepeatPrevious-v0: name the symbol of four steps earlier.

Without memory the mean stays at 0.25.
"""

from minding.configs import load_preset

main_config = load_preset("repeat_previous_ppo")
main_config.run.max_env_step = 100_000
main_config.policy.model.update(memory="gtrxl", memory_length=8, memory_layers=1)
del main_config.policy.eval["freq"]
