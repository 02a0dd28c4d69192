"""GAIL on Acrobot-v1: imitate a trained agent without the environment's rewards.

The target is 95 % of the way from -500 to the score of the recorded policy, -87; three seeds ended at -80 to -85.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=200_000, target=-108.0),
    env=dict(env_id="Acrobot-v1"),
    policy=dict(
        type="gail",
        learn=dict(learning_rate=1e-3),
        eval=dict(freq=20_000, n_episode=20),
        other=dict(
            # minding train acrobot_ppo; minding data record runs/acrobot_ppo --steps 5000
            data="runs/acrobot_ppo/data",
            # Of either sign: rewards above 0 alone pay for not ending the episode.
            gail=dict(reward="logit", gradient_penalty=1.0),
        ),
    ),
)

proof = dict(seeds=3, recorded=(dict(preset="acrobot_ppo", steps=5_000),))
