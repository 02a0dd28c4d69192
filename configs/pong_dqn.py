"""Double DQN on Atari Pong from pixels (extra atari).

The target has not been measured yet.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=10_000_000, metrics_freq=10_000, target=18.0),
    env=dict(
        env_id="ALE/Pong-v5",
        # As pong_ppo, in ale-py's own threads; training rewards are those of the paper.
        env_kwargs=dict(frameskip=1, repeat_action_probability=0.0),
        wrappers=["atari"],
        backend="native",
        reward_clip=1.0,
        evaluator_env_num=2,
    ),
    policy=dict(
        type="dqn",
        model=dict(hidden=[512], normalize_obs=False),
        learn=dict(learning_rate=1e-4, batch_size=32, warmup=20_000, target=dict(freq=1_000)),
        eval=dict(freq=250_000),
        # A stack of frames takes 28 kB: the buffer is not part of checkpoints.
        other=dict(eps=dict(end=0.01, decay=1_000_000), buffer_size=100_000, save_buffer=False),
    ),
)

proof = None
