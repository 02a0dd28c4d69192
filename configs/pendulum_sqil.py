"""SQIL on Pendulum-v1: imitate a trained agent without the environment's rewards.

The target is 85 % of the way from random play, -1170, to the recorded policy, -136; seeds 0 to 2 ended at -150.2,
-149.9 and -156.7.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=15_000, target=-291.0),
    env=dict(env_id="Pendulum-v1", collector_env_num=1),
    policy=dict(
        type="sqil",
        model=dict(hidden=[128, 128], normalize_obs=False),
        learn=dict(batch_size=128, update_per_collect=1),
        collect=dict(n_sample=1),
        eval=dict(freq=2_500, n_episode=20),
        # From actions without exploration a run ended at -699.
        # minding train pendulum_sac; minding data record runs/pendulum_sac --explore --steps 20000
        other=dict(buffer_size=50_000, data="runs/pendulum_sac/data"),
    ),
)

proof = dict(seeds=3, recorded=(dict(preset="pendulum_sac", steps=20_000, explore=True),))
