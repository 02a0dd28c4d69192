"""Double DQN with hindsight on BitFlip-v0: reach a pattern of bits, with a reward that gives no hint on the way."""

from easydict import EasyDict

main_config = EasyDict(
    chain="hindsight",
    run=dict(max_env_step=40_000, target=-5.0),
    env=dict(env_id="minding/BitFlip-v0", env_kwargs=dict(bits=10)),
    policy=dict(
        type="dqn",
        model=dict(hidden=[256], normalize_obs=False),
        learn=dict(gamma=0.98, update_per_collect=80),
        collect=dict(n_sample=160),
        eval=dict(freq=5_000, n_episode=50),
        other=dict(eps=dict(decay=20_000), buffer_size=200_000),
    ),
)
