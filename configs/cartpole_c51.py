"""C51 on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=60_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="c51",
        # As cartpole_dqn. With a reward of 1 per step and gamma 0.99, no return exceeds 100.
        model=dict(hidden=[256, 256], v_min=0.0, v_max=100.0, normalize_obs=False),
        learn=dict(
            learning_rate=1.5e-3, anneal_lr=True, batch_size=64, update_per_collect=128, nstep=3, target=dict(freq=512)
        ),
        collect=dict(n_sample=256),
        other=dict(eps=dict(end=0.04, decay=8_000)),
        eval=dict(freq=5_000, n_episode=20),
    ),
)
