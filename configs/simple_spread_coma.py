"""COMA on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is half of the way from random play, -79, to a hand-coded controller, -31; the return is the sum over the
agents.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=800_000, target=-55.0),
    env=dict(
        env_id="mpe2/simple_spread_v3",
        env_kwargs=dict(max_cycles=25, continuous_actions=False),
        normalize_reward=True,
        reward_gamma=0.8,
        collector_env_num=64,
    ),
    policy=dict(
        type="coma",
        # What one action is worth is a tenth of what the state is: the critic learns that from many short steps ahead,
        # in mixed minibatches, while the policy still tries everything.
        model=dict(critic_state=False),
        learn=dict(
            critic_learning_rate=2e-3,
            gamma=0.8,
            td_lambda=0.0,
            n_epoch=8,
            n_minibatch=16,
            entropy_weight=0.1,
            target=dict(kind="soft", tau=0.02),
        ),
        collect=dict(n_sample=1600),
        eval=dict(freq=50_000, n_episode=40, deterministic=True),
    ),
)
