"""DQN with RND on minding/DeepSea-v0: each of 20 steps has to go right.

Expected: an evaluation mean of at least 0.9 within 100k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=0.9),
    env=dict(env_id="minding/DeepSea-v0", env_kwargs=dict(size=20)),
    policy=dict(
        type="dqn",
        # Values of the last step reach the first one in few updates.
        learn=dict(update_per_collect=32, nstep=3),
        collect=dict(n_sample=128),
        other=dict(rnd=dict(weight=0.1), eps=dict(decay=5_000, end=0.01)),
        eval=dict(n_episode=20),
    ),
)

proof = dict(seeds=2)
