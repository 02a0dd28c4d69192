"""Rainbow on Acrobot-v1: swing a two-link arm up."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=50_000, target=-100.0),
    env=dict(env_id="Acrobot-v1"),
    policy=dict(
        type="rainbow",
        # Each step costs 1: discounted returns lie between -1 / (1 - gamma) and 0.
        model=dict(v_min=-100.0, v_max=0.0, normalize_obs=False),
        learn=dict(anneal_lr=True, update_per_collect=32),
        collect=dict(n_sample=64),
        eval=dict(freq=5_000, n_episode=20),
        other=dict(priority=dict(beta_steps=25_000)),
    ),
)

proof = dict(seeds=3)
