"""PPO with RND on minding/DeepSea-v0: each of 20 steps has to go right."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000, target=0.9),
    env=dict(env_id="minding/DeepSea-v0", env_kwargs=dict(size=20), collector_env_num=16, normalize_reward=False),
    policy=dict(
        type="ppo",
        model=dict(normalize_obs=False),
        learn=dict(learning_rate=1e-3, n_epoch=4, n_minibatch=4, entropy_weight=0.02, value_clip=True, anneal_lr=True),
        # Short rollouts: what was new in one is soon known.
        collect=dict(n_sample=512),
        other=dict(rnd=dict(weight=1.0)),
        eval=dict(n_episode=20),
    ),
)
