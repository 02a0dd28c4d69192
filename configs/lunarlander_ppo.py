"""PPO on LunarLander-v3: land between the flags (extra box2d)."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, target=200.0),
    env=dict(env_id="LunarLander-v3", collector_env_num=16, reward_gamma=0.999),
    policy=dict(
        type="ppo",
        learn=dict(
            learning_rate=1e-3,
            n_epoch=8,
            # Landing takes hundreds of steps: a longer horizon than usual.
            gamma=0.999,
            gae_lambda=0.98,
            entropy_weight=0.01,
            value_clip=True,
            anneal_lr=True,
        ),
        collect=dict(n_sample=4096),
        eval=dict(freq=50_000, n_episode=20),
    ),
)
