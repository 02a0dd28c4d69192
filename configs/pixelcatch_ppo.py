"""PPO on minding/PixelCatch-v0: catch falling balls, from pixels.

Expected: nearly every ball is caught within 50k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=50_000),
    env=dict(env_id="minding/PixelCatch-v0"),
    policy=dict(
        type="ppo",
        model=dict(hidden=[128], activation="relu"),
        learn=dict(
            learning_rate=1e-3,
            gamma=0.97,
        ),
        eval=dict(n_episode=20),
    ),
)

proof = None
