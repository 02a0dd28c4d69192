"""PPO with an LSTM on minding/RepeatPrevious-v0: name the symbol of four steps earlier.

Without memory the mean stays at 0.25.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000, target=0.95),
    env=dict(env_id="minding/RepeatPrevious-v0", collector_env_num=16, normalize_reward=False),
    policy=dict(
        type="ppo",
        model=dict(hidden=[32], memory="lstm", memory_dim=32, normalize_obs=False),
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
        eval=dict(freq=20_000, n_episode=20),
    ),
)
