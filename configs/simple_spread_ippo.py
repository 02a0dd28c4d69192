"""IPPO, PPO with shared parameters, on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is half of the way from random play, -79, to a hand-coded controller, -31; the return is the sum over the
agents.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=160_000, target=-55.0),
    env=dict(
        env_id="mpe2/simple_spread_v3", env_kwargs=dict(max_cycles=25, continuous_actions=False), reward_gamma=0.95
    ),
    policy=dict(
        type="ippo",
        model=dict(hidden=[128, 128], normalize_obs=False),
        learn=dict(learning_rate=7e-4, anneal_lr=True, n_minibatch=8, gamma=0.95, entropy_weight=0.002),
        collect=dict(n_sample=800),
        eval=dict(freq=20_000, n_episode=40, deterministic=True),
    ),
)
