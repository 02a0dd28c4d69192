"""PPO on minding/PixelCatch-v0: catch falling balls, from pixels.

Expected: nearly every ball is caught within 50k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=50_000),
    env=dict(env_id="minding/PixelCatch-v0", normalize_reward=False),
    policy=dict(
        type="ppo",
        model=dict(hidden=[128], activation="relu", normalize_obs=False),
        learn=dict(
            learning_rate=1e-3,
            gamma=0.97,
            n_epoch=4,
            n_minibatch=4,
            entropy_weight=0.01,
            value_clip=True,
            anneal_lr=True,
        ),
        eval=dict(n_episode=20),
    ),
)

proof = None
