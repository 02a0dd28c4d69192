"""MATD3 on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

Expected: an evaluation mean of at least -55 within 40k environment steps, half of the way from random play, -79, to a
hand-coded controller, -31; `simple_spread_maddpg` has the goal of a longer run.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=40_000, target=-55.0),
    env=dict(
        env_id="mpe2/simple_spread_v3",
        env_kwargs=dict(max_cycles=25, continuous_actions=False),
        normalize_reward=True,
        reward_gamma=0.95,
    ),
    policy=dict(
        type="matd3",
        learn=dict(learning_rate=2e-3, anneal_lr=True, tau=0.03),
        eval=dict(freq=20_000, n_episode=40),
    ),
)
