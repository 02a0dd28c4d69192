"""MADDPG on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is 80 % of the way from random play, -79, to a hand-coded controller, -31; the return is the sum over the
agents.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, target=-40.6),
    env=dict(
        env_id="mpe2/simple_spread_v3",
        env_kwargs=dict(max_cycles=25, continuous_actions=False),
        normalize_reward=True,
        reward_gamma=0.95,
    ),
    policy=dict(
        type="maddpg",
        model=dict(hidden=[128, 128]),
        learn=dict(learning_rate=2e-3, anneal_lr=True, tau=0.03),
        eval=dict(freq=50_000, n_episode=40),
    ),
)
