"""PPO with a gated transformer on minding/RepeatPrevious-v0: name the symbol of four steps earlier.

Without memory the mean stays at 0.25.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=0.95),
    env=dict(env_id="minding/RepeatPrevious-v0", collector_env_num=16, normalize_reward=False),
    policy=dict(
        type="ppo",
        model=dict(hidden=[32], memory="gtrxl", memory_dim=32, memory_length=8, memory_layers=1, normalize_obs=False),
        # An answer has no influence on what follows.
        learn=dict(
            learning_rate=2e-3,
            gamma=0.5,
            n_epoch=4,
            n_minibatch=4,
            entropy_weight=0.01,
            value_clip=True,
            anneal_lr=True,
        ),
        collect=dict(n_sample=576),
        eval=dict(n_episode=20),
    ),
)
