"""PQN on CartPole-v1: balance a pole on a cart, with action values and without replay."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, target=475.0),
    env=dict(env_id="CartPole-v1", collector_env_num=16),
    policy=dict(type="pqn", eval=dict(n_episode=20), other=dict(eps=dict(decay=40_000))),
)

proof = dict(seeds=3)
