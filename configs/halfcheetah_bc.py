"""Behavioural cloning on HalfCheetah-v5, from the data of `halfcheetah_td3_bc`: what the others are measured by.

Expected: no target; it clones two policies at once.
"""

from minding.configs import halfcheetah_td3_bc
from minding.engine import Config

main_config = Config(
    exp_name="halfcheetah_bc",
    run=dict(max_train_iter=50_000),
    env=dict(env_id="HalfCheetah-v5"),
    policy=dict(
        type="bc",
        model=dict(hidden=[256, 256], activation="relu", normalize_obs=True),
        learn=dict(learning_rate=3e-4),
        eval=dict(freq=10_000, n_episode=10),
        other=dict(data="data/halfcheetah_medium_final"),
    ),
)

proof = halfcheetah_td3_bc.proof
