"""CQL on Pendulum-v1: from 10,000 steps each of a half-trained and a trained policy while exploring.

The target is 85 % of the way from random play, -1170, to a trained policy, -136; seeds 0 to 2 ended at -167.4, -166.6
and -174.0.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=10_000, target=-291.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="cql",
        model=dict(hidden=[128, 128], normalize_obs=True),
        learn=dict(batch_size=128),
        eval=dict(n_episode=20),
        # What nobody tries, a penalty on values cannot judge. With the runs of `pendulum_td3_bc`:
        # minding data record runs/medium --steps 10000 --explore --out data/pendulum_medium_explored
        # minding data record runs/expert --steps 10000 --explore --out data/pendulum_expert_explored
        # minding data convert data/pendulum_medium_explored data/pendulum_expert_explored
        #     --out data/pendulum_medium_expert_explored
        other=dict(data="data/pendulum_medium_expert_explored"),
    ),
)

_explored = dict(preset="pendulum_sac", steps=10_000, explore=True)
proof = dict(seeds=3, recorded=(dict(_explored, env_step=3_250), _explored))
