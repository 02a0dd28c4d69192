"""PPO with RND on MountainCar-v0: every step costs 1, and random play does not reach the top."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000, target=-160.0),
    env=dict(env_id="MountainCar-v0", collector_env_num=16),
    policy=dict(
        type="ppo",
        learn=dict(learning_rate=1e-3, n_epoch=4, n_minibatch=4, entropy_weight=0.01, value_clip=True, anneal_lr=True),
        collect=dict(n_sample=2048),
        other=dict(rnd=dict(weight=1.0, learning_rate=1e-4)),
        eval=dict(n_episode=20),
    ),
)

proof = dict(seeds=3)
