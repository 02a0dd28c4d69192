"""T-REX on CartPole-v1: from episodes of random play and of a half-trained agent, ranked by their returns.

Expected: an evaluation mean of at least 475 of 500 within 100k environment steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="trex",
        learn=dict(learning_rate=1e-3),
        eval=dict(n_episode=20),
        # minding data record --random --env CartPole-v1 --steps 2000 --out random
        # minding train cartpole_ppo run.max_env_step=20000
        # minding data record runs/cartpole_ppo --explore --steps 5000 --out half
        # minding data convert random half --out data/cartpole_ranked
        other=dict(data="data/cartpole_ranked"),
    ),
)

proof = dict(
    seeds=3, recorded=(dict(steps=2_000), dict(preset="cartpole_ppo", env_step=20_000, steps=5_000, explore=True))
)
