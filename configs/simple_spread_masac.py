"""MASAC on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

Expected: an evaluation mean of at least -40.6 within 120k environment steps, as MADDPG; see `simple_spread_maddpg`.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=120_000, target=-40.6),
    env=dict(
        env_id="mpe2/simple_spread_v3",
        env_kwargs=dict(max_cycles=25, continuous_actions=False),
        normalize_reward=True,
        reward_gamma=0.95,
    ),
    policy=dict(
        type="masac",
        learn=dict(learning_rate=2e-3, anneal_lr=True, tau=0.03),
        eval=dict(freq=40_000, n_episode=40),
    ),
)
