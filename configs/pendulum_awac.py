"""AWAC on Pendulum-v1: from the replay set of SAC, all steps of its training.

The target is 90 % of the way from random play, -1170, to a trained policy, -136; seeds 0 to 2 ended at -151.1, -156.3
and -166.0.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=10_000, target=-239.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="awac",
        model=dict(normalize_obs=True),
        eval=dict(n_episode=20),
        # What `offline_data_saver` writes in the chain of `pendulum_sac`: in a program,
        # with minding.Agent("pendulum_sac") as agent:
        #     agent.learn(use=[offline_data_saver(agent.cfg, "data/pendulum_replay")])
        other=dict(data="data/pendulum_replay"),
    ),
)

proof = dict(seeds=3, recorded=(dict(preset="pendulum_sac"),))
