"""ReBRAC on HalfCheetah-v5, TD3+BC with its switches, from the data of `halfcheetah_td3_bc`.

Expected: an evaluation mean above that of `halfcheetah_bc` and above the data's own within 50k gradient steps.
"""

from minding.configs import halfcheetah_td3_bc, load_preset

main_config = load_preset("halfcheetah_td3_bc")
main_config.exp_name = "halfcheetah_rebrac"
main_config.policy.model.update(hidden=[256, 256, 256], norm="layer")
# beta_1 = 0.01, for actions of six numbers, and beta_2 = 0.1: the paper's, for D4RL's medium-expert data.
main_config.policy.update(learn=dict(alpha=16.7, critic_penalty=0.1))

proof = halfcheetah_td3_bc.proof
