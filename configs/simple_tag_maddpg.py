"""MADDPG on PettingZoo's simple_tag_v3: three slow predators hunt one fast prey between obstacles (extra mpe).

Expected: its predators touch the prey of DDPG more often than DDPG's predators touch its prey, and touch any prey more
often than random play does; `python -m proofs.tag_crossplay` lets them play against each other.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000),
    env=dict(
        env_id="mpe2/simple_tag_v3",
        env_kwargs=dict(max_cycles=25, continuous_actions=False),
        normalize_reward=True,
        reward_gamma=0.95,
    ),
    policy=dict(
        type="maddpg",
        # As simple_spread_maddpg.
        model=dict(hidden=[128, 128]),
        learn=dict(learning_rate=2e-3, anneal_lr=True, tau=0.03),
        eval=dict(freq=50_000, n_episode=40),
    ),
)

proof = dict(target=None, seeds=1)
