"""PPO on MiniGrid-DoorKey-5x5-v0: take a key, open the door, reach the goal, seeing cells ahead (extra minigrid)."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, target=0.9),
    env=dict(
        env_id="MiniGrid-DoorKey-5x5-v0",
        wrappers=[dict(minigrid=dict(mask=True))],
        collector_env_num=16,
        normalize_reward=False,
    ),
    policy=dict(
        type="ppo",
        model=dict(cnn=[[16, 2, 1], [32, 2, 1]], cnn_dim=64, normalize_obs=False),
        learn=dict(learning_rate=1e-3, n_epoch=4, n_minibatch=4, entropy_weight=0.01, value_clip=True, anneal_lr=True),
        collect=dict(n_sample=2048),
        eval=dict(freq=20_000, n_episode=20),
    ),
)
