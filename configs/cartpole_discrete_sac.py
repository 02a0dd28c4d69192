"""Discrete SAC on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=60_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="discrete_sac",
        # From unscaled observations both actor and critics learn to hold the pole, but the cart drifts off the track.
        model=dict(hidden=[64, 64], normalize_obs=True),
        learn=dict(learning_rate=1e-3, anneal_lr=True, batch_size=64, update_per_collect=32, nstep=3, tau=0.01),
        collect=dict(n_sample=64, random_steps=1_000),
        other=dict(buffer_size=30_000),
        eval=dict(freq=5_000, n_episode=20),
    ),
)
