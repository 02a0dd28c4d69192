"""QMIX on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is 80 % of the way from random play, -79, to a hand-coded controller, -31.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, target=-41.0),
    env=dict(
        env_id="mpe2/simple_spread_v3",
        env_kwargs=dict(max_cycles=25, continuous_actions=False),
        normalize_reward=True,
        reward_gamma=0.85,
    ),
    policy=dict(
        type="qmix",
        # Each agent sees all of the others.
        model=dict(hidden=[64, 64], memory="none", normalize_obs=False),
        learn=dict(
            learning_rate=2e-3, update_per_collect=16, gamma=0.85, td_lambda=0.3, target=dict(kind="soft", tau=0.01)
        ),
        eval=dict(freq=50_000, n_episode=40),
    ),
)
