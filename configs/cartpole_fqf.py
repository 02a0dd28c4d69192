"""FQF on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 50k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=50_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="fqf",
        model=dict(normalize_obs=True, n_cosines=32, n_fractions=8),
        # As cartpole_iqn.
        learn=dict(
            learning_rate=1.5e-3, anneal_lr=True, batch_size=64, update_per_collect=128, nstep=3, target=dict(freq=512)
        ),
        collect=dict(n_sample=256),
        other=dict(eps=dict(end=0.04, decay=8_000)),
        eval=dict(freq=5_000, n_episode=20),
    ),
)
