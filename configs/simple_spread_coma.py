"""COMA on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

Expected: an evaluation mean of at least -55 within 1M environment steps, half of the way from random play, -79, to a
controller by hand, -31; the return is the sum over the agents (a target, not measured yet).
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="simple_spread_coma",
    run=dict(max_env_step=1_000_000),
    env=dict(
        env_id="mpe2/simple_spread_v3",
        env_kwargs=dict(max_cycles=25, continuous_actions=False),
        normalize_reward=True,
        reward_gamma=0.95,
        collector_env_num=16,
    ),
    policy=dict(
        type="coma",
        learn=dict(
            learning_rate=1e-3,
            critic_learning_rate=2e-3,
            gamma=0.95,
            n_epoch=8,
            entropy_weight=0.02,
            target=dict(kind="soft", tau=0.02),
        ),
        eval=dict(freq=50_000, n_episode=40),
    ),
)

proof = dict(target=-55.0)
