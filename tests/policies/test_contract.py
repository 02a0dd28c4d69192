"""What every policy does, for all algorithms of the table; one compiled policy serves all tests of a case.

Cases of `LEARNING` are compiled, the others only act. A policy under test is put back into its first state before each
test, in place, as a resumed run does.
"""

import copy
import types
import warnings
from collections.abc import Mapping

import cloudpickle
import compiled_once
import numpy as np
import of_algorithms
import pytest
from fakes import Batches, rows_of
from treevalue import FastTreeValue

from benchmarks.fingerprint import fingerprint
from minding.engine.data import obs_trees
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import CheckpointError, MindingError, NonFiniteError
from minding.engine.process.compiled import RecompileWarning
from minding.engine.process.runtime import ms, nn
from minding.engine.types import LaneContext, LearnOutput
from minding.policies import ALGORITHMS, get_policy_class
from minding.policies.core.acting_network import acting_network
from minding.policies.export.reader import draw_memory
from minding.policies.learning.update import LearnGuard

BATCH, ROWS = 8, 33
CASES = {
    case: (algorithm, *what)
    for algorithm in ALGORITHMS
    for case, what in of_algorithms.constant(algorithm, "CONTRACT").items()
}
FIRST = {algorithm: case for case, (algorithm, *_) in reversed(CASES.items())}
"""The first case of each algorithm; `make check` has it too, and one that learns."""
SAME = {"airl": "ppo", "gail": "ppo", "trex": "ppo", "sqil": "sac", "discrete_sqil": "discrete_sac"}
"""Algorithms whose policy is that of another one; what it learns from is their own."""
IN_PLACE = {
    "dreamer": "dreamer, full posterior, decoder of convolutions",
    "muzero": "muzero, masked",
    "trpo": "trpo, composite",
}
"""Cases that learn in place of the first of their algorithm: their updates have its parts, and more; what is different
in Dreamer's, choices and the gradient of REINFORCE, `test_learning.py` compiles."""
ONE_EACH = tuple(IN_PLACE.get(name, case) for name, case in FIRST.items() if name not in SAME)
LEARNING = (*ONE_EACH, "mappo, box", "ppo, box", "ppo, composite", "sac, SimBa")
"""Cases that learn: of the others the tests of the algorithm, `test_learning.py` or `contract/test_resume.py` compile
the like."""
GRAPHS_ONLY = ("crossq", "edac", "fqf", "ppo, box")
"""MindSpore runs an operator of theirs in graphs only; of CrossQ, Adam makes whole steps of gradients that are zero but
for rounding, before a batch normalization. The tests of their algorithms compile."""
PAIRS = ("maddpg", "masac", "matd3")
"""Their graphs have the networks of each agent one by one, which takes 2 s an agent to compile. Their own tests have
three agents."""
LOOPS = ("ppo", "dqn", "sac", "qmix", "td3", "td3_bc", "matd3", "maddpg")
"""Algorithms that make two steps in a call, one of each kind of rows and those whose actor has every second step; for
the others, a loop would take a third of the time to compile."""
SIZES = {"action": 2, "obs.b": 2}


@pytest.fixture(scope="module")
def build(tiny_config):
    def make(case, seed=0, **options):
        algorithm, observation, action, overrides = CASES[case]
        team = {"team": ("a", "b")} if algorithm in PAIRS else {}
        cfg = tiny_config(algorithm, observation, action, seed=seed, **team, **overrides)
        return get_policy_class(algorithm)(cfg, **options)

    return make


def pytest_generate_tests(metafunc):
    """Tests of policies that learn have the cases of `LEARNING`, those of others all cases."""
    if "built" in metafunc.fixturenames:
        cases = LEARNING if "compiled" in metafunc.fixturenames else CASES
        if "eager" in metafunc.fixturenames:
            cases = [case for case in cases if case not in GRAPHS_ONLY]
        fast = (*FIRST.values(), *ONE_EACH)
        marked = [case if case in fast else pytest.param(case, marks=pytest.mark.slow) for case in cases]
        metafunc.parametrize("built", marked, indirect=True, scope="module")


@pytest.fixture(scope="module")
def built(request, build):
    policy = build(request.param)
    started = copy.deepcopy(policy.state_dict())
    return types.SimpleNamespace(case=request.param, policy=policy, started=started, batches=batches_of(policy))


@pytest.fixture(scope="module")
def compiled(built):
    built.policy.learn_mode.forward(random_batch(built.batches))
    return built


@pytest.fixture
def policy(built):
    built.policy.load_state_dict(built.started)
    built.policy.eval_mode.reset()
    return built.policy


@pytest.fixture
def eager(build, compiled, monkeypatch):
    """A policy of the case whose updates are not compiled, see `compiled_once`."""
    monkeypatch.setattr(compiled_once.shared, "eager", True)
    return build(compiled.case)


@pytest.fixture
def batch(compiled):
    return random_batch(compiled.batches)


def batches_of(policy):
    made = Batches(policy, ROWS)
    made.steps = 2 if policy.name in LOOPS else 1
    return made


def random_batch(batches, **changes):
    rng = np.random.default_rng(0)
    values = {**rows_of(batches.layout, ROWS, rng, {**SIZES, **batches.sizes}), **changes}
    # Learners of trajectories take rows as (T, N).
    in_time = {"cut", "memory", "obs.alive", "return.1.0", "search_policy"}
    block = (BATCH // 2, 2) if in_time & set(batches.layout.fields) else (BATCH,)
    return batches(values, rng.integers(0, ROWS, (batches.steps, *block)))


def acted_on(policy):
    """Fields of what the policy acts on; of several agents those of all, also where rows are those of single ones."""
    fields = policy.obs_fields("obs")
    if policy.spec["num_agents"] == 1 or "obs.alive" in fields:
        return fields
    team = policy.spec["agents"]
    agents = len(team["names"])
    each = {name: Field((agents, *field.shape), field.dtype) for name, field in fields.items()}
    state = {} if team["state"] is None else {"obs.state": Field(tuple(team["state"]["shape"]))}
    return {**each, "obs.alive": Field((agents,), "bool"), **state}


def observation(policy, count=6):
    layout, rng = RowLayout(acted_on(policy)), np.random.default_rng(5)
    values = rows_of(layout, count, rng, SIZES)
    if set(values) == {"obs"}:
        return values["obs"]
    return FastTreeValue({name.removeprefix("obs."): value for name, value in values.items()})


def params(policy, part=""):
    return {name: value.copy() for name, value in policy.state_dict()["params"].items() if name.startswith(part)}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


def differ(a, b):
    return [name for name in a if a[name].tobytes() != b[name].tobytes()]


# Learning


def test_one_learn_call_changes_the_weights_and_counts_its_steps(policy, batch):
    before = params(policy, "net.")
    output = policy.learn_mode.forward(batch)
    metrics = output.metrics
    assert output.steps == len(batch.index)
    assert all(np.isfinite(value) for value in metrics.values())
    assert len(differ(before, params(policy, "net."))) > len(before) / 2


def test_learning_compiles_once_and_reports_other_shapes(policy, batch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            policy.learn_mode.forward(batch)
        assert policy._update.signatures == 1
        # Two rows fewer: agents that learn one after another divide them.
        fewer = batch.index[..., : -1 if batch.index.ndim == 3 else -2]
        smaller = IndexedBatch(batch.layout, batch.tables, fewer.copy())
        with pytest.raises(RecompileWarning, match="keep batch sizes constant"):
            policy.learn_mode.forward(smaller)
        with pytest.raises(RecompileWarning, match="learns from another buffer than before"):
            policy.learn_mode.forward(random_batch(batches_of(policy)))


def test_a_compiled_update_computes_what_its_python_code_does(policy, batch, eager):
    # Which the tests of the algorithm compare with its formulas.
    expected = eager.learn_mode.forward(random_batch(batches_of(eager)))
    assert policy.learn_mode.forward(batch).metrics == pytest.approx(expected.metrics, rel=1e-5, abs=1e-6)
    found = params(policy)
    for name, array in params(eager).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=3e-7, err_msg=name)


def not_a_number(policy):
    """A field that the loss depends on, all NaN."""
    fields = policy.learn_mode.fields
    name = next(name for name in ("return", "reward", "outcome", "obs", "obs.a") if name in fields)
    return {name: np.full((ROWS, *fields[name].shape), np.nan, np.float32)}


def test_a_nan_in_the_batch_is_an_error_that_names_the_metric(policy, compiled):
    broken = random_batch(compiled.batches, **not_a_number(policy))
    with pytest.raises(NonFiniteError, match=rf"{policy.name}: \w*loss is nan after this update"):
        policy.learn_mode.forward(broken)


def outcome(output):
    """What a learn call returned, to be compared to the bit."""
    return output.metrics, output.steps, None if output.priorities is None else output.priorities.tobytes()


@pytest.mark.eager
@pytest.mark.parametrize("case", ["ppo", "dqn", "sac"])
def test_progress_stays_within_its_range(build, case, monkeypatch):
    made, seen = build(case), []
    inputs, batches = made.inputs, batches_of(made)
    monkeypatch.setattr(made, "inputs", lambda batch, progress: seen.append(progress) or inputs(batch, progress))
    for given in (-0.5, 0.25, 1.5):
        made.learn_mode.forward(random_batch(batches), given)
    assert seen == [0.0, 0.25, 1.0]


def test_with_skip_an_update_that_ends_in_nan_leaves_no_trace(policy, compiled, monkeypatch):
    monkeypatch.setattr(policy, "_guard", LearnGuard(policy.name, "skip", policy))
    learn = policy.learn_mode.forward
    assert learn(random_batch(compiled.batches)).metrics["skipped"] == 0.0
    state = copy.deepcopy(policy.state_dict())
    expected = learn(random_batch(compiled.batches))
    policy.load_state_dict(state)
    broken = random_batch(compiled.batches, **not_a_number(policy))
    assert learn(broken) == LearnOutput({"skipped": 1.0}, steps=0)
    after = policy.state_dict()
    assert_same(after["params"], state["params"])
    assert fingerprint(after) == fingerprint(state)
    assert outcome(learn(random_batch(compiled.batches))) == outcome(expected)


def test_on_nan_is_a_setting_of_every_algorithm(tiny_config):
    for name in ALGORITHMS:
        assert tiny_config(name).policy.learn.on_nan == "stop"
    made = get_policy_class("dqn")(tiny_config("dqn", **{"policy.learn.on_nan": "skip"}))
    before = params(made)
    broken = random_batch(batches_of(made), reward=np.full(ROWS, np.inf, np.float32))
    assert made.learn_mode.forward(broken).metrics["skipped"] == 1.0
    assert_same(params(made), before)


def test_annealed_rates_are_0_at_the_end_and_others_stay(policy, batch):
    metrics = policy.learn_mode.forward(batch, progress=1.0).metrics
    rates = [rate for name, rate in metrics.items() if name.startswith("learning_rate")]
    assert {rate == 0.0 for rate in rates} == {bool(policy.cfg.learn.anneal_lr)}


def test_targets_begin_as_their_source_and_critics_differ(built):
    begun = built.started["params"]
    teacher = "critic." if any(name.startswith("critic.") for name in begun) else "net."
    followed = {"target_": "", "targets.": "critics.", "target.": teacher, "slow.": "critic."}
    for name, array in begun.items():
        for start, online in followed.items():
            if name.startswith(start):
                assert np.array_equal(array, begun[name.replace(start, online, 1)]), name
        if "critics.q1." in name and name.endswith("weight"):
            assert "norms" in name or not np.array_equal(array, begun[name.replace("q1", "q2")]), name


def test_algorithms_not_compiled_here_share_a_policy():
    assert {name: get_policy_class(name) for name in SAME} == {name: get_policy_class(SAME[name]) for name in SAME}


# Acting


def test_eval_is_deterministic_and_draws_nothing(policy):
    obs, rng = observation(policy), policy.state_dict()["acting"]
    actions = []
    for _ in range(2):
        policy.eval_mode.reset()
        actions.append(policy.eval_mode.forward(obs))
    assert np.array_equal(*actions)
    assert policy.state_dict()["acting"] == rng


def test_what_collect_mode_returns_fits_the_rows(policy):
    obs = observation(policy)
    output = policy.collect_mode.forward(obs)
    assert set(output) == {"action", *policy.collect_mode.record_fields}
    # What is recorded for an estimator only is no field of learning.
    layout = RowLayout({name: field for name, field in policy.learn_mode.fields.items() if name in output})
    if not layout.fields:
        # What search makes of it is learned, not what the policy does.
        assert "policy" in policy.learn_mode.fields
        return
    assert "action" in layout.fields
    # Rows may be those of single agents.
    rows = {name: output[name].reshape(-1, *field.shape) for name, field in layout.fields.items()}
    tables = layout.pack(rows)
    for name in layout.fields:
        assert np.array_equal(layout.read(tables, name), rows[name])
    assert policy.eval_mode.forward(obs).shape == output["action"].shape


def test_random_actions_fill_the_space(policy):
    obs = observation(policy, 200)
    action = policy.collect_mode.forward(obs, random=True)["action"]
    kind = policy.spec["action"]["kind"]
    assert len(action) == 200
    if kind == "box":
        assert action.dtype == np.float32
        assert -1.0 <= action.min() < -0.9
        assert 0.9 < action.max() <= 1.0
    else:
        sizes = policy.spec["action"].get("nvec", [policy.spec["action"].get("n")])
        for column, size in zip(action.reshape(200, -1).T, sizes):
            assert set(column.tolist()) == set(range(size))


def for_all_agents(policy):
    obs, count = observation(policy), policy.spec["num_agents"]
    return (obs if count == 1 else policy.eval_mode.actor.rows(obs)), draw_memory(policy, 6 * count)


def test_the_host_actor_follows_training(policy, batch):
    obs, memory = for_all_agents(policy)
    before = [output.copy() for output in policy.actors["eval"].outputs(obs, memory)]
    policy.learn_mode.forward(batch)
    for old, new in zip(before, policy.actors["eval"].outputs(obs, memory)):
        # Actions, as one-hot, may stay the same.
        assert not np.array_equal(old, new) or set(np.unique(new)) <= {0.0, 1.0}


COMPILED = {}
"""The first case of each class of acting networks. `export/test_writer.py` compiles more of their variants."""


def test_the_host_actor_equals_the_graph(built, policy, monkeypatch):
    (obs, memory), rng = for_all_agents(policy), np.random.default_rng(6)
    # Biases begin as zeros.
    for p in policy.net.trainable_params():
        p.asnumpy()[...] += 0.01 * rng.standard_normal(p.shape, np.float32)
    leaves = [*obs_trees.named(obs).values(), *([] if memory is None else [memory])]
    graph = acting_network(policy.net, "graph", "act")
    if COMPILED.setdefault(type(policy.net), built.case) != built.case:
        python_code = compiled_once.eagerly(graph._compiled._cell)
        monkeypatch.setattr(graph, "_compiled", lambda *inputs: python_code(inputs))
    for host, found in zip(policy.actors["eval"].outputs(obs, memory), graph(leaves)):
        np.testing.assert_allclose(host, found, atol=1e-5)


def test_a_collect_mode_acts_alike_where_it_is_shipped(policy):
    mode, obs = policy.collect_mode, observation(policy)
    factory = cloudpickle.loads(cloudpickle.dumps(mode.factory()))
    shipped = factory(LaneContext(0, {name: array.copy() for name, array in mode.weights().items()}))
    for _ in range(2):
        assert_same(shipped.forward(obs), mode.forward(obs))


def test_a_batch_without_rows_leaves_the_normalizers(policy, batch):
    before = params(policy)
    fields = batch.layout.columns
    policy.observe({name: batch.layout.read(batch.tables.host, name, np.zeros(0, np.int64)) for name in fields})
    assert_same(before, params(policy))


# State


def test_a_state_round_trips_bit_by_bit_into_a_fresh_policy(policy, batch, build, compiled):
    policy.learn_mode.forward(batch)
    policy.collect_mode.forward(observation(policy))
    state = copy.deepcopy(policy.state_dict())
    fresh = build(compiled.case, seed=2)
    assert differ(params(fresh, "net."), params(policy, "net."))
    fresh.load_state_dict(state)
    assert_same(fresh.state_dict()["params"], state["params"])
    assert fingerprint(fresh.state_dict()) == fingerprint(state)
    obs = observation(policy)
    assert_same(fresh.collect_mode.forward(obs), policy.collect_mode.forward(obs))


def test_a_policy_that_has_learned_continues_from_a_state(policy, batch):
    policy.learn_mode.forward(batch)
    # It holds copies: further learning does not change it.
    state, obs = policy.state_dict(), observation(policy)
    expected = outcome(policy.learn_mode.forward(batch)), params(policy)
    acted = copy.deepcopy(policy.collect_mode.forward(obs))
    policy.learn_mode.forward(batch)
    policy.load_state_dict(state)
    assert_same(params(policy), state["params"])
    assert (outcome(policy.learn_mode.forward(batch)), differ(params(policy), expected[1])) == (expected[0], [])
    assert_same(policy.collect_mode.forward(obs), acted)


def test_another_networks_state_is_refused_and_loads_nothing(policy):
    before, state = params(policy), copy.deepcopy(policy.state_dict())
    name = sorted(state["params"])[-1]
    state["params"] = {key: value + np.ones_like(value) for key, value in state["params"].items()}
    state["params"][name] = np.zeros((7, 7, 7), np.float32)
    with pytest.raises(CheckpointError, match=r"is float32 \(7, 7, 7\) in the checkpoint"):
        policy.load_state_dict(state)
    del state["params"][name]
    with pytest.raises(CheckpointError, match="has no parameter"):
        policy.load_state_dict(state)
    assert_same(params(policy), before)


# Building


@pytest.mark.parametrize("case", FIRST.values())
def test_only_the_modes_asked_for_are_built(build, case):
    whole, acting = build(case), build(case, modes=("collect", "eval"))
    # The normalizer's center and scale are no weights, but acting needs them.
    assert set(acting.params) == {name for name in whole.params if name.startswith("net.")}
    assert {name.split(".")[0] for name in whole.params} > {"net"}
    acting.load_state_dict(whole.state_dict())
    obs = observation(whole)
    assert np.array_equal(acting.eval_mode.forward(obs), whole.eval_mode.forward(obs))
    with pytest.raises(MindingError, match=r"was built for collect, eval; learn_mode needs modes=\(\.\.\., 'learn'\)"):
        acting.learn_mode  # noqa: B018


def numbers(node, seen):
    """All numbers in what an update is compiled from."""
    if isinstance(node, (float, np.ndarray)):
        yield np.asarray(node).tolist()
    if id(node) in seen:
        return
    seen[id(node)] = node
    if isinstance(node, ms.Tensor):
        yield node.asnumpy().tolist()
    elif isinstance(node, (list, tuple, Mapping)):
        for each in node.values() if isinstance(node, Mapping) else node:
            yield from numbers(each, seen)
    elif isinstance(node, nn.Cell) or type(node).__module__.startswith("minding."):
        yield from numbers(getattr(node, "__dict__", ()), seen)


@pytest.mark.parametrize("case", FIRST.values())
def test_the_seed_decides_weights_and_actions(build, case):
    a, b, c = build(case), build(case), build(case, seed=1)
    obs = observation(a)
    assert_same(params(a), params(b))
    assert_same(a.collect_mode.forward(obs), b.collect_mode.forward(obs))
    assert differ(params(a, "net."), params(c, "net."))
    # A number that is no parameter would be compiled in.
    assert list(numbers(a.root, {})) != list(numbers(c.root, {}))
    c.load_state_dict(a.state_dict())
    assert list(numbers(a.root, {})) == list(numbers(c.root, {}))


# Their networks are cells of PPO, PG, C51, TD3, QMIX, DQN, SAC and discrete SAC; images that a `StateValue` sees
# have a test of their own, and Dreamer sees some in a case of the table.
ALIKE = {"a2c", "a3c", "ac", "bc", "coma", "ddpg", "dreamer", "idqn", "impala", "ippo", "pqn", "qrdqn", "rainbow"}
ALIKE |= {"matd3", "masac", "trpo", "vdn"}
ALIKE |= {"fqf", "qtran", "wqmix", "redq", "crossq", "tqc", "awac", "cql", "discrete_cql", "discrete_sqil", "edac"}
ALIKE |= {"gail", "iql", "sqil", "td3_bc", "airl", "trex"}
