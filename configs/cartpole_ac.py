"""One-step actor-critic on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, target=475.0),
    env=dict(env_id="CartPole-v1", collector_env_num=16, normalize_reward=True),
    policy=dict(
        type="ac",
        model=dict(normalize_obs=True),
        # One-step errors say little each: the critic has to be ahead of the actor.
        learn=dict(critic_learning_rate=3e-3),
        collect=dict(n_sample=16),
        eval=dict(freq=20_000, n_episode=20),
    ),
)
