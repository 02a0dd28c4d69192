"""PPO with a GRU on minding/TMaze-v0: remember for ten steps which way to turn.

Without memory the mean stays at 0.5.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=150_000, target=0.95),
    env=dict(env_id="minding/TMaze-v0", collector_env_num=16, normalize_reward=False),
    policy=dict(
        type="ppo",
        model=dict(hidden=[32], memory="gru", memory_dim=32, normalize_obs=False),
        learn=dict(
            learning_rate=1e-3,
            gamma=0.98,
            n_epoch=4,
            n_minibatch=4,
            entropy_weight=0.01,
            value_clip=True,
            anneal_lr=True,
        ),
        collect=dict(n_sample=512),
        eval=dict(n_episode=20),
    ),
)
