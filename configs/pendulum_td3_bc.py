"""TD3+BC on Pendulum-v1: from 10,000 steps each of a half-trained and a trained policy.

The target is 85 % of the way from random play, -1170, to the trained policy, -136; seeds 0 to 2 ended at -188.0, -165.0
and -189.8.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=10_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="td3_bc",
        model=dict(normalize_obs=True),
        eval=dict(n_episode=20),
        # minding train pendulum_sac exp_name=medium run.max_env_step=3250
        # minding train pendulum_sac exp_name=expert
        # minding data record runs/medium --steps 10000
        # minding data record runs/expert --steps 10000
        # minding data convert runs/medium/data runs/expert/data --out data/pendulum_medium_expert
        other=dict(data="data/pendulum_medium_expert"),
    ),
)

_medium = dict(preset="pendulum_sac", env_step=3_250, steps=10_000)
proof = dict(seeds=3, recorded=(_medium, dict(preset="pendulum_sac", steps=10_000)))
