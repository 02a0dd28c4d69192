"""Acting modes in other processes: as factories, on weights that are written from outside."""

import os
import pickle
import subprocess
import sys
import types
from pathlib import Path

import acting_process
import cloudpickle
import numpy as np
import pytest
from fakes import IMAGE, VECTOR, dict_of, discrete, multi_discrete, space_of
from treevalue import FastTreeValue

from minding.engine.lanes.inference import Ask, divided, joined
from minding.engine.types import LaneContext
from minding.policies import get_policy_class
from minding.policies.core.base import MODES

NESTED = dict_of(a=dict_of(b=discrete(3), c=VECTOR), d=space_of(2, 2))
CASES = {
    "action values, dueling": ("dqn", VECTOR, discrete(3), {"policy.model.dueling": True}),
    "noise on weights": ("rainbow", VECTOR, discrete(3), {"policy.model.noisy_sigma": 2.0}),
    "implicit quantiles, dueling": ("iqn", VECTOR, discrete(3), {"policy.model.dueling": True}),
    "categorical, nested observations": ("ppo", NESTED, discrete(3), {}),
    "several choices": ("ppo", space_of(2, 3), multi_discrete(3, 2), {"policy.model.activation": "relu"}),
    "gaussian, normalized": ("ppo", VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True}),
    "squashed gaussian": ("sac", VECTOR, space_of(3), {}),
    "noise that goes on": ("td3", VECTOR, space_of(3), {"policy.collect.noise.kind": "ou"}),
    "action values with a memory": ("r2d2", VECTOR, discrete(3), {"policy.model.memory": "lstm"}),
    "images": ("ppo", dict_of(image=IMAGE, speed=VECTOR), space_of(2), {}),
    "memory": ("ppo", NESTED, discrete(3), {"policy.model.memory": "gru", "policy.model.memory_dim": 5}),
}
COUNT = 5


@pytest.fixture(scope="module")
def build(tiny_config):
    def make(case, modes=("collect", "eval"), **overrides):
        algorithm, observation, action, own = CASES[case]
        cfg = tiny_config(algorithm, observation, action, **own, **overrides)
        return get_policy_class(algorithm)(cfg, modes)

    return make


def observation(space):
    rng = np.random.default_rng(3)
    if space["kind"] == "dict":
        return FastTreeValue({name: observation(child) for name, child in space["spaces"].items()})
    if space["kind"] == "discrete":
        return rng.integers(0, space["n"], COUNT)
    if space["dtype"] == "uint8":
        return rng.integers(0, 256, (COUNT, *space["shape"]), dtype=np.uint8)
    return rng.standard_normal((COUNT, *space["shape"])).astype(np.float32)


def used(policy):
    """Brings weights and random stream away from where the seed puts them."""
    policy.collect_mode.forward(observation(policy.spec["observation"]), random=True)
    acting_process.halve(policy.collect_mode.weights())


def shipment_of(policy, index=0):
    modes = (policy.collect_mode, policy.eval_mode)
    weights = {**modes[0].weights(), **modes[1].weights()}
    return {
        "index": index,
        "factories": [mode.factory() for mode in modes],
        "weights": {name: array.copy() for name, array in weights.items()},
        "obs": observation(policy.spec["observation"]),
    }


def run_elsewhere(shipments, folder):
    """What a fresh process answers to the shipments, and what is known of it."""
    sent, answers = folder / "shipments", folder / "answers"
    sent.write_bytes(cloudpickle.dumps(shipments))
    script = Path(acting_process.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(sent), str(answers)],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return pickle.loads(answers.read_bytes())  # noqa: S301


@pytest.fixture(scope="module")
def shipped(build, tmp_path_factory):
    """For every case: what its policy answers here, and what its modes answer in one fresh process."""
    policies = {case: build(case) for case in CASES}
    for policy in policies.values():
        used(policy)
    shipments = {(case, index): shipment_of(policy, index) for case, policy in policies.items() for index in (0, 1)}
    elsewhere, process = run_elsewhere(shipments, tmp_path_factory.mktemp("lane"))
    here = {}
    for case, policy in policies.items():
        modes, obs = (policy.collect_mode, policy.eval_mode), shipments[case, 0]["obs"]
        before = acting_process.play(*modes, obs)
        acting_process.halve(policy.collect_mode.weights())
        here[case] = {"before": before, "after": acting_process.play(*modes, obs)}
    return types.SimpleNamespace(here=here, elsewhere=elsewhere, process=process)


def test_a_process_with_shipped_modes_loads_no_mindspore(shipped):
    assert not shipped.process["mindspore"]
    assert shipped.process["kilobytes"] < 80_000


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_a_shipped_mode_answers_to_the_bit(shipped, case, when):
    here, there = shipped.here[case][when], shipped.elsewhere[case, 0][when]
    assert here.keys() == there.keys()
    for name, array in here.items():
        assert array.dtype == there[name].dtype, name
        assert array.shape == there[name].shape, name
        assert array.tobytes() == there[name].tobytes(), name


@pytest.mark.parametrize("case", CASES)
def test_every_worker_draws_from_its_own_stream(shipped, case):
    first, second = (shipped.elsewhere[case, index]["before"] for index in (0, 1))
    assert not np.array_equal(first["random.action"], second["random.action"])
    assert np.array_equal(first["greedy.action"], second["greedy.action"])


def test_only_weights_of_the_acting_network_are_shipped(tiny_config):
    policy = get_policy_class("sac")(tiny_config("sac", **{"policy.model.normalize_obs": True}))
    names = set(policy.collect_mode.weights())
    assert {name.split(".")[0] for name in names} == {"net"}
    assert {"net.encoder.encoders.0.normalizer.center", "net.head.log_std.bias"} <= names
    assert len(names) == 8


@pytest.mark.parametrize("case", CASES)
def test_a_mode_with_a_remote_network_needs_no_weights(build, case):
    policy = build(case)
    used(policy)
    shipment = shipment_of(policy)
    served = LaneContext(0, shipment["weights"])
    networks = [factory.network(served)[0] for factory in shipment["factories"]]
    modes = [
        factory.on_network(LaneContext(0, {}), network) for factory, network in zip(shipment["factories"], networks)
    ]
    there = acting_process.play(*modes, shipment["obs"])
    here = acting_process.play(policy.collect_mode, policy.eval_mode, shipment["obs"])
    assert {name: array.tobytes() for name, array in there.items()} == {k: v.tobytes() for k, v in here.items()}


@pytest.mark.parametrize("case", CASES)
def test_what_two_ask_together_is_what_each_would_get(build, case):
    policy = build(case)
    used(policy)
    shipment = shipment_of(policy)
    network, shared = shipment["factories"][0].network(LaneContext(0, shipment["weights"]))
    asked = []
    view = shipment["factories"][0].on_network(
        LaneContext(1, {}), lambda leaves: asked.append(leaves) or network(leaves)
    )
    view.forward(shipment["obs"])
    batch = [Ask(0, 0, [leaf[rows] for leaf in asked[0]], None, 0.0) for rows in (slice(0, 2), slice(2, COUNT))]
    together = divided(network(joined(batch)), batch, shared)
    for ask, mine in zip(batch, together, strict=True):
        for here, there in zip(network(ask.leaves), mine, strict=True):
            np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


def test_a_graph_that_is_computed_elsewhere_loads_nothing_here(build, tmp_path):
    policy = build("several choices", **{"policy.collect.backend": "graph"})
    factory = policy.collect_mode.factory()
    script = (
        "import pickle, sys; from minding.engine.types import LaneContext\n"
        f"factory = pickle.load(open({str(tmp_path / 'factory')!r}, 'rb'))\n"
        "print(factory.on_network(LaneContext(0, {}), None).name, 'mindspore' in sys.modules)"
    )
    (tmp_path / "factory").write_bytes(cloudpickle.dumps(factory))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["collect", "False"], done.stderr


def test_a_compiled_actor_takes_over_weights_to_the_bit(build):
    policy = build("several choices", MODES, **{"policy.collect.backend": "graph"})
    used(policy)
    answers = acting_process.act(shipment_of(policy))
    assert_like_the_policys_own(answers, policy)
    other = acting_process.act(shipment_of(policy, index=1))
    assert not np.array_equal(other["before"]["random.action"], answers["before"]["random.action"])


@pytest.mark.parametrize("backend", ["numpy", pytest.param("graph", marks=pytest.mark.slow)])
def test_the_first_worker_goes_on_remembering(build, backend):
    policy = build("memory", **{"policy.collect.backend": backend})
    obs = observation(policy.spec["observation"])
    used(policy)
    shipment = shipment_of(policy)
    first, second = (shipment["factories"][0](LaneContext(k, dict(shipment["weights"]))) for k in (0, 1))
    expected = policy.collect_mode.forward(obs)["memory"]
    assert expected.any()
    assert np.array_equal(first.forward(obs)["memory"], expected)
    assert not second.forward(obs)["memory"].any()
    # A checkpoint of the worker is taken over here.
    policy.collect_mode.load_state_dict(second.state_dict())
    assert np.array_equal(policy.collect_mode.forward(obs)["memory"], second.memory)


def assert_like_the_policys_own(answers, policy):
    modes, obs = (policy.collect_mode, policy.eval_mode), observation(policy.spec["observation"])
    before = acting_process.play(*modes, obs)
    acting_process.halve(policy.collect_mode.weights())
    for when, expected in (("before", before), ("after", acting_process.play(*modes, obs))):
        assert answers[when].keys() == expected.keys()
        for name, array in expected.items():
            assert np.array_equal(answers[when][name], array), name
