"""PPO on MinAtar/Breakout-v1: break bricks on a field of 10 x 10 cells (extra minatar)."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, target=5.0),
    env=dict(env_id="MinAtar/Breakout-v1", collector_env_num=16, normalize_reward=False),
    policy=dict(
        type="ppo",
        model=dict(cnn=[[16, 3, 1]], cnn_dim=128, hidden=[], activation="relu", normalize_obs=False),
        learn=dict(learning_rate=1e-3, n_epoch=4, n_minibatch=4, entropy_weight=0.01, value_clip=True, anneal_lr=True),
        collect=dict(n_sample=2048),
        eval=dict(freq=50_000, n_episode=20),
    ),
)

proof = None
