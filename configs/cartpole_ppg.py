"""PPG on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(type="ppg", learn=dict(n_epoch=4, aux_freq=8, anneal_lr=True), eval=dict(n_episode=20)),
)
