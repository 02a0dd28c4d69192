"""T-REX on CartPole-v1: from episodes of random play and of two barely trained agents, ranked by their returns.

The mean return of the data is 76.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=400.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="trex",
        learn=dict(learning_rate=1e-3),
        eval=dict(n_episode=20),
        other=dict(
            # minding data record --random --env CartPole-v1 --steps 2000 -o random
            # minding train cartpole_ppo run.max_env_step=5000 exp_name=first
            # minding train cartpole_ppo run.max_env_step=10000 exp_name=second
            # minding data record runs/first --explore --steps 5000 -o first
            # minding data record runs/second --explore --steps 5000 -o second
            # minding data convert random first second --out data/cartpole_ranked
            data="data/cartpole_ranked",
            # Of either sign: rewards above 0 alone pay for not ending the episode.
            trex=dict(output="standardized"),
        ),
    ),
)

_AGENT = dict(preset="cartpole_ppo", steps=5_000, explore=True)
proof = dict(seeds=2, recorded=(dict(steps=2_000), {**_AGENT, "env_step": 5_000}, {**_AGENT, "env_step": 10_000}))
