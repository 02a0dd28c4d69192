"""DQN on minding/PixelCatch-v0: catch falling balls, from pixels.

Expected: nearly every ball is caught within 10k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=10_000),
    env=dict(env_id="minding/PixelCatch-v0"),
    policy=dict(
        type="dqn",
        model=dict(hidden=[128], normalize_obs=False),
        learn=dict(learning_rate=5e-4, gamma=0.97, batch_size=64, warmup=500),
        other=dict(eps=dict(decay=4_000)),
        eval=dict(freq=2_000, n_episode=20),
    ),
)

proof = None
