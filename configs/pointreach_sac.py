"""SAC with hindsight on PointReach-v0: bring a point to a place, with a reward that gives no hint on the way."""

from easydict import EasyDict

main_config = EasyDict(
    chain="hindsight",
    run=dict(max_env_step=30_000, target=-20.0),
    env=dict(env_id="minding/PointReach-v0", info_keys=["is_success"]),
    policy=dict(
        type="sac",
        model=dict(hidden=[64, 64], normalize_obs=False),
        learn=dict(gamma=0.98, batch_size=128, update_per_collect=100),
        collect=dict(n_sample=400, random_steps=1_000),
        eval=dict(freq=5_000, n_episode=20),
        other=dict(buffer_size=200_000),
    ),
)
