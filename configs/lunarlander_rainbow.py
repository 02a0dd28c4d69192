"""Rainbow on LunarLander-v3: land between the flags (extra box2d)."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=400_000, target=200.0),
    env=dict(env_id="LunarLander-v3"),
    policy=dict(
        type="rainbow",
        # As lunarlander_dqn. Discounted returns of crashes and landings lie within these bounds.
        model=dict(hidden=[256, 256], v_min=-200.0, v_max=200.0, normalize_obs=False),
        learn=dict(anneal_lr=True, update_per_collect=16, target=dict(kind="soft", tau=0.01), warmup=5_000),
        collect=dict(n_sample=64),
        eval=dict(freq=25_000, n_episode=20),
        other=dict(buffer_size=200_000),
    ),
)
