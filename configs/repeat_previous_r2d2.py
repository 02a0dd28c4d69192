"""R2D2 with a GRU on minding/RepeatPrevious-v0: name the symbol of four steps earlier.

Without memory the mean stays at 0.25.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=50_000, target=0.95),
    env=dict(env_id="minding/RepeatPrevious-v0", collector_env_num=16),
    policy=dict(
        type="r2d2",
        model=dict(hidden=[32], memory_dim=32),
        learn=dict(
            learning_rate=3e-3,
            anneal_lr=True,
            update_per_collect=16,
            # An answer has no influence on what follows, and no return is large.
            gamma=0.5,
            nstep=1,
            rescale=False,
            burn_in=4,
            target=dict(freq=100),
        ),
        collect=dict(n_sample=128),
        other=dict(priority=dict(beta_steps=6_000), eps=dict(decay=3_000)),
        eval=dict(freq=5_000, n_episode=20),
    ),
)
