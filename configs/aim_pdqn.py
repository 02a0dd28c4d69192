"""P-DQN on Aim-v0: choose the direction of a throw by its value, and its force by an actor."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=5_000, target=9.0),
    env=dict(env_id="minding/Aim-v0"),
    policy=dict(
        type="pdqn",
        model=dict(hidden=[64, 64]),
        learn=dict(gamma=0.5),
        eval=dict(freq=1_000, n_episode=20),
        other=dict(eps=dict(decay=2_000)),
    ),
)

proof = dict(seeds=3)
