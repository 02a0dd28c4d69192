"""Behavioral cloning on Pendulum-v1: from the steps of a trained policy, recorded by `minding data record`.

The target is 95 % of the score of the recorded policy, -144.
"""

from easydict import EasyDict

main_config = EasyDict(
    # How an episode starts decides what it can bring: 100 of them leave an error of 8.
    run=dict(max_train_iter=10_000, final_episodes=1000, target=-151.0),
    env=dict(env_id="Pendulum-v1"),
    policy=dict(
        type="bc",
        model=dict(hidden=[128, 128], normalize_obs=True),
        eval=dict(n_episode=20),
        # `minding train pendulum_sac`, then `minding data record runs/pendulum_sac --steps 50000`.
        other=dict(data="runs/pendulum_sac/data"),
    ),
)

proof = dict(recorded=(dict(preset="pendulum_sac", steps=50_000),))
