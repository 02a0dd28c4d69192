"""Double DQN on MinAtar/Breakout-v1: break bricks on a field of 10 x 10 cells (extra minatar)."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000, target=5.0),
    env=dict(env_id="MinAtar/Breakout-v1"),
    policy=dict(
        type="dqn",
        model=dict(cnn=[[16, 3, 1]], cnn_dim=128, hidden=[], normalize_obs=False),
        learn=dict(learning_rate=2.5e-4, batch_size=32, warmup=5_000),
        eval=dict(freq=50_000, n_episode=20),
        other=dict(eps=dict(decay=100_000)),
    ),
)

proof = None
