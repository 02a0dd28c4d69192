"""Chains are found by the names of their files."""

import pytest

from minding.configs import compile_run
from minding.configs.chains import CHAINS, Chain, check_chain, get_chain
from minding.engine import Config
from minding.engine.chain.context import OfflineRLContext, OnlineRLContext
from minding.engine.config.options import setting_at
from minding.engine.errors import ConfigError
from minding.policies import ALGORITHMS


def test_each_file_is_a_chain_and_says_what_it_runs_on():
    assert {each.chain for each in ALGORITHMS.values()} <= {*CHAINS}
    assert {"contest", "hindsight", "prior_data"} <= {*CHAINS}
    for name in CHAINS:
        chain = get_chain(name)
        assert isinstance(chain, Chain)
        assert chain.context is (OfflineRLContext if name == "offline" else OnlineRLContext)


@pytest.mark.parametrize(
    ("chain", "algorithm", "key"),
    [
        ("off_policy", "ppo", "policy.other.buffer_size"),
        ("sequence_replay", "dqn", "policy.learn.length"),
        ("on_policy", "dqn", "policy.learn.gae_lambda"),
        ("contest", "dqn", "policy.learn.gae_lambda"),
        ("single_step", "sac", "policy.learn.gae_lambda"),
        ("monte_carlo", "dqn", "policy.learn.n_minibatch"),
        ("trajectory", "dqn", "policy.learn.n_epoch"),
        ("offline", "ppo", "policy.other.data"),
        ("self_play", "dqn", "policy.collect.search"),
    ],
)
def test_a_chain_for_other_algorithms_is_refused_with_the_setting_that_it_reads(chain, algorithm, key):
    env_id = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    cfg = compile_run(Config(chain=chain, env={"env_id": env_id}, policy={"type": algorithm}))
    problem = f"chain='{chain}' with policy.type='{algorithm}': the chain reads {key}, which the algorithm"
    with pytest.raises(ConfigError, match=problem):
        check_chain(cfg)


def test_every_algorithm_has_the_settings_of_its_own_chain():
    for algorithm in ALGORITHMS.values():
        schema = {"policy": algorithm.config_schema()}
        for key in get_chain(algorithm.chain).settings:
            assert setting_at(schema, key) is not None, (algorithm.name, key)


def test_the_steps_of_an_iteration_fit_into_the_replay_buffer():
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "dqn"})
    sizes = ["policy.other.buffer_size=8", "policy.learn.warmup=1", "policy.learn.batch_size=1"]
    compile_run(user, sizes)
    with pytest.raises(ConfigError, match=r"policy\.collect\.n_sample=16 exceeds policy\.other\.buffer_size=8"):
        compile_run(user, [*sizes, "policy.collect.n_sample=16"])


def test_the_rows_of_all_gradient_steps_of_an_iteration_fit_into_memory():
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "dqn"})
    sizes = ["policy.learn.batch_size=1000", "policy.learn.update_per_collect=100000"]
    compile_run(user, sizes)
    with pytest.raises(ConfigError, match=r"update_per_collect=100001 with .*batch_size=1000: .* 100,001,000 rows"):
        compile_run(user, [*sizes, "policy.learn.update_per_collect=100001"])


@pytest.mark.parametrize(
    ("limiter", "settings", "key"),
    [
        ("ratio", ["policy.other.table.samples_per_insert=8", "policy.other.table.limiter_error=100"], "limiter_error"),
        (
            "queue",
            [f"policy.other.table.{name}" for name in ("sampler=fifo", "remover=fifo", "max_times_sampled=1")]
            + ["policy.other.table.limiter_rows=2000"],
            "limiter_rows",
        ),
    ],
)
def test_a_limiter_that_is_too_narrow_for_a_call_is_widened_by_its_own_setting(limiter, settings, key):
    table = ["policy.other.replay=table", f"policy.other.table.limiter={limiter}", *settings]
    cfg = compile_run("cartpole_dqn", [*table, "policy.learn.warmup=1"])
    samples = cfg.policy.learn.update_per_collect * cfg.policy.learn.batch_size
    with pytest.raises(ConfigError, match=rf"draw fewer, or set policy\.other\.table\.{key} to at least {samples}$"):
        check_chain(cfg)
