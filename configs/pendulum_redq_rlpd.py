"""RLPD with its ensemble on Pendulum-v1: ten critics and twenty gradient steps per environment step, with random play
as the other half of each minibatch."""

from easydict import EasyDict

main_config = EasyDict(
    chain="prior_data",
    run=dict(max_env_step=1_500, target=-200.0),
    env=dict(env_id="Pendulum-v1", collector_env_num=1),
    policy=dict(
        type="redq",
        # Ball et al., 2023, https://arxiv.org/abs/2302.02948, section 4 and appendix: ten critics, of which two make a
        # target, layer normalization in the critics, half of each minibatch from the data.
        model=dict(hidden=[64, 64], norm="critics", normalize_obs=False),
        learn=dict(learning_rate=1e-3, update_per_collect=20, warmup=256),
        collect=dict(n_sample=1),
        eval=dict(freq=500, n_episode=20),
        # The data of `pendulum_rlpd`.
        other=dict(buffer_size=50_000, data="data/pendulum_random"),
    ),
)

proof = dict(seeds=3, recorded=(dict(steps=20_000),))
