"""PPO on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="ppo",
        # With a rate that ends at 0 what was learned stays. In lanes, rollouts are older by one update: without entropy
        # one of seven seeds ended at 278 there. Of twenty that shared each iteration between two collectors, a weight
        # of 0.005 left two behind, and the default learning rate one.
        learn=dict(anneal_lr=True, entropy_weight=0.01, learning_rate=5e-4),
        eval=dict(n_episode=20),
    ),
)
