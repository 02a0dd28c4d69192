"""MADDPG on PettingZoo's simple_tag_v3: three slow predators hunt one fast prey between obstacles (extra mpe).

Expected: its predators touch the prey of DDPG more often than DDPG's predators touch its prey, and touch any prey more
often than random play does; `python -m proofs.tag_crossplay` lets them play against each other.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_maddpg")
main_config.run.update(max_env_step=300_000, target=None)
main_config.env.env_id = "mpe2/simple_tag_v3"

proof = dict(target=None, seeds=1)
