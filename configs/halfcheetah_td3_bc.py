"""TD3+BC on HalfCheetah-v5: from 50,000 steps each of a half-trained and a trained PPO while exploring.

Expected: an evaluation mean above BC's and above the mean of the data, 3,204, within 50k gradient steps; one seed ended
at 4,649.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=50_000),
    env=dict(env_id="HalfCheetah-v5"),
    policy=dict(
        type="td3_bc",
        model=dict(normalize_obs=True),
        # The paper's 2.5 learned too slowly: 3,715 after 50k steps, below BC (one seed).
        learn=dict(alpha=0.5),
        eval=dict(freq=10_000),
        # minding train halfcheetah_ppo exp_name=medium run.max_env_step=200000
        # minding train halfcheetah_ppo exp_name=final run.max_env_step=1000000
        # minding data record runs/medium --explore --steps 50000
        # minding data record runs/final --explore --steps 50000
        # minding data convert runs/medium/data runs/final/data --out data/halfcheetah_medium_final
        other=dict(data="data/halfcheetah_medium_final"),
    ),
)

_explored = dict(preset="halfcheetah_ppo", steps=50_000, explore=True)
proof = dict(target=None, seeds=3, recorded=(dict(_explored, env_step=200_000), _explored))
