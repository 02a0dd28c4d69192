"""DQN with RND on MountainCar-v0: every step costs 1, and random play does not reach the top."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=-160.0),
    env=dict(env_id="MountainCar-v0"),
    policy=dict(
        type="dqn",
        learn=dict(update_per_collect=64, nstep=3, anneal_lr=True),
        # The predictor learns slowly: with four times as many gradient steps nothing is new before the car is out.
        collect=dict(n_sample=256),
        other=dict(rnd=dict(weight=3.0, learning_rate=1e-4, n_minibatch=1)),
        eval=dict(n_episode=20),
    ),
)

proof = dict(seeds=2)
