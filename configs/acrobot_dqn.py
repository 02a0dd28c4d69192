"""Double DQN on Acrobot-v1: swing a two-link arm up."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=-100.0),
    env=dict(env_id="Acrobot-v1"),
    policy=dict(
        type="dqn",
        model=dict(normalize_obs=False),
        # A greedy policy that never moves the resting arm is always near: unless the learning rate falls to 0, it comes
        # back.
        learn=dict(anneal_lr=True, update_per_collect=32),
        collect=dict(n_sample=64),
        eval=dict(n_episode=20),
        other=dict(eps=dict(end=0.1, decay=12_000)),
    ),
)
