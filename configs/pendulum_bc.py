"""Behavioural cloning on Pendulum-v1: from what a trained policy did, recorded by `minding record-data`.

Expected: at least 95 % of the return of the policy that was recorded, -140, within 10k gradient steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="pendulum_bc",
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="bc",
        model=dict(hidden=[128, 128], normalize_obs=True),
        eval=dict(n_episode=20),
        # `minding train pendulum_sac`, then `minding record-data runs/pendulum_sac --steps 50000`.
        other=dict(data="runs/pendulum_sac/data"),
    ),
)
