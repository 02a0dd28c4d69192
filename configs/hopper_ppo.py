"""PPO on Hopper-v5: hop on one leg, three continuous torques (extra mujoco).

Expected: the scores in docs/results/mujoco.md within 1M environment steps.
"""

from easydict import EasyDict

# The settings of all tasks of MuJoCo.
main_config = EasyDict(
    run=dict(max_env_step=1_000_000),
    env=dict(env_id="Hopper-v5", collector_env_num=16, reward_clip=10.0),
    policy=dict(
        type="ppo",
        model=dict(log_std=-0.5),
        learn=dict(
            # The learning rate falls to two thirds in this run, as in the benchmark of Tianshou.
            anneal_lr=True,
            anneal_steps=3_000_000,
            n_minibatch=32,
        ),
        collect=dict(n_sample=2048),
        eval=dict(freq=50_000),
    ),
)
