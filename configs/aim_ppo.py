"""PPO on Aim-v0: choose the direction of a throw, and its force."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=40_000, target=9.0),
    env=dict(env_id="minding/Aim-v0"),
    policy=dict(type="ppo", learn=dict(gamma=0.5), eval=dict(n_episode=20)),
)

proof = dict(seeds=3)
