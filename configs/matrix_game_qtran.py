"""QTRAN in the matrix game of its paper: two agents earn 8 together, and lose 12 if only one of them tries.

The target is the best payoff; QMIX learns to earn 0.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=4_000, target=8.0),
    env=dict(env_id="minding.envs.games.matrix_game:MatrixGame"),
    policy=dict(
        type="qtran",
        # There is one step and one state; the values of all joint actions are learned from random play.
        model=dict(hidden=[16], memory="none", normalize_obs=False),
        learn=dict(
            learning_rate=3e-3, anneal_lr=False, warmup=160, update_per_collect=20, td_lambda=0.0, target=dict(freq=40)
        ),
        collect=dict(n_sample=80),
        other=dict(buffer_size=2_000, eps=dict(end=1.0)),
        eval=dict(freq=400, n_episode=2),
    ),
)

proof = dict(seeds=3)
