"""AIRL on Acrobot-v1: imitate a trained agent without the environment's rewards.

The target is 95 % of the way from -500 to the score of the recorded policy, -87.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, target=-108.0),
    env=dict(env_id="Acrobot-v1"),
    policy=dict(
        type="airl",
        learn=dict(learning_rate=1e-3),
        eval=dict(freq=20_000, n_episode=20),
        # minding train acrobot_ppo; minding data record runs/acrobot_ppo --steps 5000
        other=dict(data="runs/acrobot_ppo/data"),
    ),
)

proof = dict(seeds=2, recorded=(dict(preset="acrobot_ppo", steps=5_000),))
