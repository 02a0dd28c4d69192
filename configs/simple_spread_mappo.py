"""MAPPO on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is 80 % of the way from random play, -79, to a hand-coded controller, -31; the return is the sum over the
agents.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=1_000_000, target=-40.6),
    env=dict(
        env_id="mpe2/simple_spread_v3", env_kwargs=dict(max_cycles=25, continuous_actions=False), collector_env_num=16
    ),
    policy=dict(
        type="mappo",
        model=dict(normalize_obs=False),
        learn=dict(learning_rate=7e-4, n_epoch=10, n_minibatch=8, gamma=0.95, entropy_weight=0.002, value_clip=False),
        collect=dict(n_sample=1600),
        eval=dict(freq=50_000, n_episode=40, deterministic=True),
    ),
)
