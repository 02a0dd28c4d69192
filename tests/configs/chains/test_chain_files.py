"""Chains of configurations: found by their files, and what they refuse before anything is built."""

import numpy as np
import pytest
from board_toys import Twig

from minding import training
from minding.configs import compile_run
from minding.configs.chains import CHAINS, Chain, check_chain, get_chain, hindsight
from minding.engine import Config, OfflineRLContext, OnlineRLContext, Task
from minding.engine.config.options import setting_at
from minding.engine.errors import ConfigError, ShapeError
from minding.engine.search import opponents
from minding.envs.games.board import RulesEnv
from minding.policies import ALGORITHMS


def test_each_file_is_a_chain_and_says_what_it_runs_on():
    assert {each.chain for each in ALGORITHMS.values()} <= {*CHAINS}
    assert {"league", "hindsight", "prior_data"} <= {*CHAINS}
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
        ("league", "dqn", "policy.learn.gae_lambda"),
        ("single_step", "sac", "policy.learn.gae_lambda"),
        ("monte_carlo", "dqn", "policy.learn.n_minibatch"),
        ("trajectory", "dqn", "policy.learn.n_epoch"),
        ("offline", "ppo", "policy.other.data"),
        ("self_play", "dqn", "policy.collect.search"),
    ],
)
def test_a_chain_for_other_algorithms_is_refused(chain, algorithm, key):
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


def test_the_rows_of_an_iterations_steps_fit_into_memory():
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
def test_a_limiter_too_narrow_for_a_call_is_widened(limiter, settings, key):
    table = ["policy.other.replay=table", f"policy.other.table.limiter={limiter}", *settings]
    cfg = compile_run("cartpole_dqn", [*table, "policy.learn.warmup=1"])
    samples = cfg.policy.learn.update_per_collect * cfg.policy.learn.batch_size
    with pytest.raises(ConfigError, match=rf"draw fewer, or set policy\.other\.table\.{key} to at least {samples}$"):
        check_chain(cfg)


# Hindsight


def goal_settings(env_id, algorithm="dqn", *overrides):
    user = Config(chain="hindsight", env={"env_id": env_id}, policy={"type": algorithm})
    return compile_run(user, overrides)


@pytest.mark.parametrize(
    ("env_id", "algorithm", "override", "message"),
    [
        ("CartPole-v1", "dqn", "seed=0", "its observation has no entry 'achieved_goal'; use an environment with goals"),
        ("minding/BitFlip-v0", "ppo", "seed=0", r"policy\.type='ppo': .* reads policy\.other\.buffer_size, which"),
        ("minding/BitFlip-v0", "r2d2", "seed=0", r"policy\.type='r2d2': .* reads policy\.other\.hindsight\.k, which"),
        ("minding/BitFlip-v0", "dqn", "policy.learn.nstep=3", r"nstep=3 sums rewards of one goal"),
        ("minding/BitFlip-v0", "dqn", "env.normalize_reward=true", "env.reward_clip"),
    ],
)
def test_no_goals_or_no_replay_is_refused_first(env_id, algorithm, override, message):
    with pytest.raises(ConfigError, match=message):
        check_chain(goal_settings(env_id, algorithm, override))


@pytest.mark.parametrize(
    ("env_id", "algorithm", "k"), [("minding/BitFlip-v0", "dqn", 4), ("minding/PointReach-v0", "td3", 2)]
)
def test_transitions_are_stored_and_again_with_k_goals(env_id, algorithm, k, monkeypatch):
    made = []
    make = hindsight.replay_buffer
    monkeypatch.setattr(hindsight, "replay_buffer", lambda *args, **kw: made.append(make(*args, **kw)) or made[-1])
    few = ("policy.model.hidden=[8]", "policy.collect.n_sample=16", f"policy.other.hindsight.k={k}")
    cfg = goal_settings(env_id, algorithm, *few, "policy.learn.warmup=10000")
    running, stored = np.zeros(cfg.env.collector_env_num, int), []

    def watch(ctx):
        over = stored[-1][1] if stored else 0
        for ended in ctx.trajectories.terminated | ctx.trajectories.truncated:
            running[:] += 1
            over += running[ended].sum()
            running[ended] = 0
        stored.append((ctx.env_step, over, len(made[0])))

    task = Task()
    with task.start(ctx=OnlineRLContext()):
        training.build(task, cfg)
        task.use(watch)
        task.run(max_step=30)
    assert [rows for *_, rows in stored] == [collected + k * over for collected, over, _ in stored]
    assert 0 < stored[-1][1] < stored[-1][0] == 480


# Self-play


class WithoutRules(RulesEnv):
    def __init__(self):
        super().__init__("tic_tac_toe")
        self.game = None


class OtherRules(RulesEnv):
    def __init__(self):
        super().__init__("tic_tac_toe")
        self.game = Twig()


def board_settings(env_id="minding/TicTacToe-v0", algorithm="alphazero", *overrides):
    return compile_run(Config(chain="self_play", env={"env_id": env_id}, policy={"type": algorithm}), overrides)


@pytest.mark.parametrize(
    ("env_id", "algorithm", "override", "message"),
    [
        ("CartPole-v1", "alphazero", "seed=0", "env_id='CartPole-v1' has no rules"),
        ("test_chain_files:WithoutRules", "alphazero", "seed=0", "no attribute `game`"),
        ("test_chain_files:OtherRules", "alphazero", "seed=0", "its `game` has no 'planes'"),
        ("minding/TicTacToe-v0", "dqn", "seed=0", r"policy\.type='dqn': the chain reads policy\.collect\.search"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opponents=[mini]", r"opponents=.mini. is unknown; did"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opponents=[]", "expected at least one, such as random"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opening_plies=9", "no game of TicTacToe"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opponents=[random,uct:5,random]", "'random' is named twice"),
    ],
)
def test_what_cannot_play_itself_is_refused_first(env_id, algorithm, override, message):
    with pytest.raises(ConfigError, match=message):
        check_chain(board_settings(env_id, algorithm, override))


def test_planes_that_a_wrapper_changed_are_refused():
    cfg = board_settings()
    cfg.env.spec.observation["spaces"]["observation"]["shape"] = [18]
    with pytest.raises(ShapeError, match=r"observes \(18,\), and the planes of TicTacToe are \(2, 3, 3\)"):
        check_chain(cfg)


def test_it_is_the_chain_of_the_algorithm():
    cfg = compile_run("connect_four_alphazero")
    check_chain(cfg)
    assert cfg.chain == "self_play"
    assert get_chain(cfg.chain).evaluate is not None


def test_an_opponent_that_cannot_play_is_refused_first(monkeypatch):
    monkeypatch.setattr(opponents, "LIMIT", 2000)
    with pytest.raises(ConfigError, match=r"policy\.eval\.opponents='minimax': .* and ConnectFour has more than 2,000"):
        check_chain(board_settings("minding/ConnectFour-v0", "alphazero", "policy.eval.opponents=[random,minimax]"))
    with pytest.raises(ConfigError, match=r"opponent='minimax': .* and ConnectFour has more than 2,000"):
        RulesEnv("connect_four", opponent="minimax")
