"""PPO on Acrobot-v1: swing a two-link arm up."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000, target=-100.0),
    env=dict(env_id="Acrobot-v1", collector_env_num=16, normalize_reward=False),
    policy=dict(
        type="ppo",
        learn=dict(learning_rate=1e-3, n_epoch=4, n_minibatch=8, entropy_weight=0.01, value_clip=True, anneal_lr=True),
        collect=dict(n_sample=2048),
        eval=dict(freq=20_000, n_episode=20),
    ),
)
