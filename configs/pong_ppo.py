"""PPO on Atari Pong from pixels (extra atari).

The target has not been measured yet.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=10_000_000, metrics_freq=10_000, target=18.0),
    env=dict(
        env_id="ALE/Pong-v5",
        # The atari wrapper skips frames and stacks them; the environment itself must then skip none.
        env_kwargs=dict(frameskip=1, repeat_action_probability=0.0),
        wrappers=["atari"],
        normalize_reward=False,
        evaluator_env_num=2,
    ),
    policy=dict(
        type="ppo",
        model=dict(hidden=[512], activation="relu", normalize_obs=False),
        learn=dict(
            learning_rate=2.5e-4,
            n_epoch=4,
            n_minibatch=4,
            clip_ratio=0.1,
            entropy_weight=0.01,
            value_clip=True,
            anneal_lr=True,
        ),
        eval=dict(freq=500_000),
    ),
)

proof = None
