"""Decision Transformer on Pendulum-v1: from 10,000 steps each of a half-trained and a trained policy.

The target is 85 % of the way from random play, -1170, to the trained policy, -136.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=3_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="dt",
        model=dict(normalize_obs=True, memory_dim=32, memory_layers=1, memory_heads=2),
        # What a good policy reaches on average: the best episodes began near the top.
        eval=dict(n_episode=20, target_return=-200.0),
        # The data of pendulum_td3_bc.
        other=dict(data="data/pendulum_medium_expert"),
    ),
)

_medium = dict(preset="pendulum_sac", env_step=3_250, steps=10_000)
proof = dict(seeds=3, recorded=(_medium, dict(preset="pendulum_sac", steps=10_000)))
