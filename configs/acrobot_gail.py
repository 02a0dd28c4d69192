"""GAIL on Acrobot-v1: imitate a trained agent without the environment's rewards.

The target is 95 % of the way from -500 to the score of the recorded policy, -87; three seeds ended at -80 to -85.
"""

from minding.configs import load_preset

main_config = load_preset("acrobot_airl")
main_config.policy.type = "gail"
# Of either sign: rewards above 0 alone pay for not ending the episode.
main_config.policy.other.gail = dict(reward="logit", gradient_penalty=1.0)

proof = dict(seeds=3, recorded=(dict(preset="acrobot_ppo", steps=5_000),))
