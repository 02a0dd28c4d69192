"""ReBRAC on HalfCheetah-v5, TD3+BC with its switches, from the data of `halfcheetah_td3_bc`.

Expected: an evaluation mean above BC's and above the mean of the data, 3,204, within 50k gradient steps; one seed ended
at 5,216.
"""

from minding.configs import halfcheetah_td3_bc, load_preset

main_config = load_preset("halfcheetah_td3_bc")
main_config.policy.model.update(hidden=[256, 256, 256], norm="layer")
# beta_1 = 0.083 for actions of six numbers, and beta_2 = 0.01. With the paper's for D4RL's medium-expert data, 0.01 and
# 0.1, one seed reached 4,045 after 50k steps, below BC.
main_config.policy.update(learn=dict(alpha=2.0, critic_penalty=0.01))

proof = halfcheetah_td3_bc.proof
