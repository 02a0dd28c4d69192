"""TRPO on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="trpo", learn=dict(gamma=0.98, gae_lambda=0.9), collect=dict(n_sample=1024), eval=dict(n_episode=20)
    ),
)
