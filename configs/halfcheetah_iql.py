"""IQL on HalfCheetah-v5, from the data of `halfcheetah_td3_bc`.

Expected: an evaluation mean above BC's and above the mean of the data, 3,204, within 50k gradient steps; one seed ended
at 4,813.
"""

from easydict import EasyDict

from minding.configs import halfcheetah_td3_bc

main_config = EasyDict(
    run=dict(max_train_iter=50_000),
    env=dict(env_id="HalfCheetah-v5"),
    policy=dict(
        type="iql",
        model=dict(normalize_obs=True),
        eval=dict(freq=10_000),
        # Made by the commands in `halfcheetah_td3_bc`.
        other=dict(data="data/halfcheetah_medium_final"),
    ),
)

proof = halfcheetah_td3_bc.proof
