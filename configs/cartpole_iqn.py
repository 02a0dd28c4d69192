"""IQN on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=60_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="iqn",
        # As cartpole_dqn.
        model=dict(hidden=[256, 256]),
        learn=dict(
            learning_rate=1.5e-3, anneal_lr=True, batch_size=64, update_per_collect=128, nstep=3, target=dict(freq=512)
        ),
        collect=dict(n_sample=256),
        other=dict(eps=dict(end=0.04, decay=8_000)),
        eval=dict(freq=5_000, n_episode=20),
    ),
)
