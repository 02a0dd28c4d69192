"""PPO with action masks on minding/MaskedGrid-v0: visit every cell of a grid once; over 90 % of moves are illegal."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=300_000, target=33.5),
    env=dict(
        env_id="minding/MaskedGrid-v0",
        collector_env_num=16,
        info_keys=["action_mask", "success"],
        normalize_reward=False,
    ),
    policy=dict(
        type="ppo",
        model=dict(hidden=[128, 128], normalize_obs=False),
        learn=dict(learning_rate=1e-3, n_epoch=8, n_minibatch=8, entropy_weight=0.01, value_clip=True, anneal_lr=True),
        collect=dict(n_sample=2048),
        eval=dict(n_episode=50),
    ),
)
