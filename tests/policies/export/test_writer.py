"""Exported files: the same actions as the policy's, from raw observations, at any batch size, in both formats."""

import itertools
import json
import types

import numpy as np
import pytest
from fakes import IMAGE, VECTOR, composite, dict_of, discrete, draw_masks, mask_of, multi_discrete, space_of

from minding.engine.data import obs_trees
from minding.engine.data.observation import observation_leaves
from minding.engine.errors import ExportError, ShapeError
from minding.engine.process.runtime import assign, ops
from minding.policies import get_policy_class
from minding.policies.export import writer as export_module
from minding.policies.export.reader import ExportedPolicy, compare, draw_memory
from minding.policies.export.writer import export_policy
from minding.policies.networks.actor_critic import Decision

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

NORMALIZED = {"policy.model.normalize_obs": True}
LAYER_NORM = {"policy.model.norm": "layer"}
GRU = {"policy.model.memory": "gru", "policy.model.memory_dim": 5}
GTRXL = {"policy.model.memory": "gtrxl", "policy.model.memory_dim": 8, "policy.model.memory_length": 3}
WORLD = {"policy.model.deter": 6, "policy.model.latents": 3, "policy.model.classes": 4}
LEAVES = dict_of(
    a=VECTOR,
    b=discrete(2),
    c=multi_discrete(2, 3),
    d=space_of(2, 2, dtype="int32"),
    e={"kind": "multi_binary", "shape": [3]},
)
PLANES = space_of(2, 6, 7, dtype="uint8", low=0, high=255)
BYTES = space_of(6, dtype="uint8", low=0, high=255)
SUPPORT = {"policy.model.n_atoms": 5, "policy.model.v_min": -1.0, "policy.model.v_max": 1.0}
BOARD = dict_of(action_mask=mask_of(4), observation=space_of(2, 3, 4))
RESIDUAL = {"policy.model.net": "residual", "policy.model.channels": 4, "policy.model.blocks": 1}
CASES = {
    "ppo, discrete": ("ppo", VECTOR, discrete(3), NORMALIZED),
    "ppo, box": ("ppo", VECTOR, space_of(2, 2), NORMALIZED),
    "ppo, own limits": ("ppo", VECTOR, space_of(2), {}),
    "ppo, multi_discrete": ("ppo", VECTOR, multi_discrete(3, 2), {}),
    "ppo, choices of two axes": ("ppo", VECTOR, multi_discrete(2, 3, 4, 2), {}),
    "ppo, composite": ("ppo", VECTOR, composite(3, 2, numbers=2), NORMALIZED),
    "ppo, composite, masked": ("ppo", dict_of(a=VECTOR, action_mask=mask_of(3, 2)), composite(3, 2, numbers=1), GRU),
    "dqn, from minus two": ("dqn", VECTOR, discrete(3), {}),
    "dqn, dueling": ("dqn", VECTOR, discrete(3), {"policy.model.dueling": True}),
    "qrdqn, dueling": ("qrdqn", VECTOR, discrete(3), {"policy.model.n_quantiles": 5, "policy.model.dueling": True}),
    "fqf": ("fqf", VECTOR, discrete(3), {"policy.model.n_fractions": 4}),
    "iqn, dueling": ("iqn", VECTOR, discrete(3), {"policy.model.dueling": True}),
    "rainbow": ("rainbow", VECTOR, discrete(3), SUPPORT),
    "c51, masked": ("c51", dict_of(action_mask=mask_of(4), observation=VECTOR), discrete(4), SUPPORT),
    "sac": ("sac", VECTOR, space_of(2), NORMALIZED),
    "td3": ("td3", VECTOR, space_of(2), NORMALIZED),
    "ppo, layer norm": ("ppo", VECTOR, discrete(3), LAYER_NORM),
    "td3, layer norm": ("td3", VECTOR, space_of(2), LAYER_NORM),
    "rainbow, layer norm": ("rainbow", VECTOR, discrete(3), {**SUPPORT, **LAYER_NORM}),
    "ppo, image": ("ppo", IMAGE, discrete(3), {}),
    "dqn, dict": ("dqn", LEAVES, discrete(2), NORMALIZED),
    "sac, image beside vector": ("sac", dict_of(a=IMAGE, b=dict_of(c=VECTOR)), space_of(2), NORMALIZED),
    "dqn, bytes, no layers": ("dqn", BYTES, discrete(2), {"policy.model.hidden": []}),
    "dqn, planes": ("dqn", PLANES, discrete(2), {"policy.model.cnn": [[3, 3, 2]]}),
    "dqn, masked": ("dqn", dict_of(action_mask=mask_of(4), observation=VECTOR), discrete(4), {}),
    "ppo, choices masked": ("ppo", dict_of(a=VECTOR, action_mask=mask_of(3, 2)), multi_discrete(3, 2), NORMALIZED),
    "r2d2": ("r2d2", VECTOR, discrete(3), GRU),
    "ppo, memory": ("ppo", dict_of(a=VECTOR, b=discrete(2)), discrete(3), {**NORMALIZED, **GRU}),
    "ppo, transformer": ("ppo", VECTOR, discrete(3), GTRXL),
    "alphazero": ("alphazero", BOARD, discrete(4), {}),
    "alphazero, residual": ("alphazero", BOARD, discrete(4), RESIDUAL),
    "dreamer": ("dreamer", VECTOR, space_of(2), WORLD),
    "dreamer, full posterior": (
        "dreamer",
        dict_of(a=VECTOR, b=discrete(2), c=IMAGE),
        discrete(3),
        {**WORLD, "policy.model.posterior": "full"},
    ),
    "dreamer, masked choices": ("dreamer", dict_of(a=VECTOR, action_mask=mask_of(3, 2)), multi_discrete(3, 2), WORLD),
}
# A MindIR file prepares itself anew for every batch size.
FAST_MINDIR = ("ppo, discrete", "sac", "ppo, memory", "td3, layer norm")
FAST_ONNX = (
    *("ppo, discrete", "ppo, own limits", "ppo, choices masked", "ppo, image", "ppo, memory", "alphazero, residual"),
    *("dqn, dict", "c51, masked", "sac", "ppo, layer norm", "dreamer"),
)
MINDIR = (
    *(*FAST_MINDIR, "dqn, dict", "rainbow", "iqn, dueling", "fqf", "ppo, transformer", "ppo, composite, masked"),
    *("sac, image beside vector", "alphazero, residual", "dreamer, full posterior", "ppo, choices of two axes"),
)
"""One of each kind of network and of output: it is the cell that ONNX files are made of, too."""
FAST = {*((case, "mindir") for case in FAST_MINDIR), *((case, "onnx") for case in FAST_ONNX)}
LOW, HIGH = np.float32([-1.0, 0.0]), np.float32([3.0, 0.5])
FORMATS = ("mindir", "onnx")
# How the environment's own actions differ from those of the policy; a Box is scaled to LOW and HIGH.
BOX = {"low": LOW.tolist(), "high": HIGH.tolist()}
STARTS = [[10, -1], [0, 7]]
ENV_ACTIONS = {
    "ppo, own limits": {**BOX, "rescaled": False},
    "ppo, choices of two axes": {"shape": [2, 2], "start": STARTS},
    "dqn, from minus two": {"start": -2},
}


def to_env(case, action):
    """What the environment gets for actions of the policy."""
    if CASES[case][2]["kind"] == "composite":
        # Its choices count from 0, and its numbers lie in [-1, 1] in the environment, too.
        numbers = CASES[case][2]["shape"][0] - len(CASES[case][2]["nvec"])
        return np.concatenate([action[:, :-numbers], np.clip(action[:, -numbers:], -1.0, 1.0)], axis=1)
    if action.dtype.kind == "f":
        # From [-1, 1] to [-1, 3] and [0, 0.5].
        scaled = action if case == "ppo, own limits" else action * np.float32([2, 0.25]) + np.float32([1, 0.25])
        return np.clip(scaled, LOW, HIGH)
    env = ENV_ACTIONS.get(case, {})
    return action.reshape(-1, *env.get("shape", action.shape[1:])) + np.array(env.get("start", 0))


def observation(space, count, seed=0):
    """Random observations, of which the vectors are neither centred nor of unit variance."""
    rng = np.random.default_rng(seed)

    def draw(leaf):
        shape = (count, *leaf.field.shape)
        kind = leaf.space["kind"]
        if kind == "box" and leaf.space["dtype"] == "float32":
            return (3.0 * rng.standard_normal(shape) + 1.0).astype(np.float32)
        if kind == "box":
            return rng.integers(0, 200, shape).astype(leaf.space["dtype"])
        if leaf.is_mask:
            return draw_masks(leaf.space["counts"], count, rng)
        return rng.integers(0, leaf.space.get("n", leaf.space.get("nvec", 2)), shape)

    leaves = {leaf.path: draw(leaf) for leaf in observation_leaves(space)}
    return obs_trees.unflatten(leaves)


@pytest.fixture(scope="module")
def made(tiny_config):
    """Policies by case, with random weights and moments; each is built once."""
    built = {}

    def make(case):
        if case not in built:
            algorithm, space, action, overrides = CASES[case]
            env = ENV_ACTIONS.get(case, BOX if action["kind"] == "box" else {})
            cfg = tiny_config(algorithm, space, action, env=env, **overrides)
            policy = get_policy_class(algorithm)(cfg, modes=("eval",))
            rng = np.random.default_rng(1)
            for _, normalizer in policy.normalizers.values():
                means = np.resize([1.0, -9.0, 30.0], normalizer.center.size)
                normalizer.update(3.0 * rng.standard_normal((50, means.size)) + means)
            if algorithm == "ppo":
                # PPO starts with actions near 0: away from there, so that limits matter.
                head = policy.net.head
                for part in (head.choices, head.numbers) if action["kind"] == "composite" else (head,):
                    assign(part.linear.weight, 100.0 * part.linear.weight.asnumpy())
            built[case] = types.SimpleNamespace(policy=policy, space=space, kind=action["kind"])
        return built[case]

    return make


@pytest.fixture(scope="module")
def export(made, tmp_path_factory):
    """The exported file of a case and a format; each is written once."""
    folder, done = tmp_path_factory.mktemp("exported"), {}

    def make(case, file_format):
        path = folder / f"{len(done)}.{file_format}"
        if (case, file_format) not in done:
            one = made(case)
            export_policy(one.policy, path, file_format, info={"algorithm": case})
            done[case, file_format] = path
        return done[case, file_format]

    return make


@pytest.mark.parametrize(
    ("case", "file_format"),
    [
        pytest.param(case, form, marks=() if (case, form) in FAST else pytest.mark.slow)
        for case in CASES
        for form in (FORMATS if case in MINDIR else ("onnx",))
    ],
)
def test_a_file_acts_as_the_policy_does_at_any_batch_size(case, file_format, made, export):
    one, exported = made(case), ExportedPolicy(export(case, file_format))
    obs = observation(one.space, 1000)
    memory = draw_memory(one.policy, 1000)
    # One file, three batch sizes: 1, 64 and what remains.
    parts = [
        exported.outputs(obs_trees.index(obs, slice(a, b)), None if memory is None else memory[a:b])
        for a, b in itertools.pairwise((0, 1, 65, 1000))
    ]
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    actor = one.policy.actors["eval"]
    raw = actor.outputs(obs, memory)
    own = actor.decide(raw)
    action = to_env(case, own)
    if one.kind == "box":
        low, high = (LOW, HIGH) if case == "ppo, own limits" else (-1.0, 1.0)
        np.testing.assert_allclose(outputs["policy_action"], np.clip(own, low, high), atol=1e-5)
        np.testing.assert_allclose(outputs["action"], action, atol=2e-5)
    elif one.kind == "composite":
        assert [*outputs][:3] == ["action", "policy_action", "logits"]
        np.testing.assert_allclose(outputs["action"], action, atol=2e-5)
        np.testing.assert_allclose(outputs["policy_action"], action, atol=2e-5)
        np.testing.assert_allclose(outputs["logits"], raw[one.policy.net.decision.output], atol=1e-5)
    else:
        number, name = one.policy.net.decision[:2]
        assert name == ("logits" if one.policy.name in ("ppo", "alphazero", "dreamer") else "q_values")
        np.testing.assert_allclose(outputs[name], raw[number], atol=1e-5)
        assert outputs["action"].dtype == np.int32
        assert np.array_equal(outputs["action"], action)
    if memory is None:
        np.testing.assert_allclose(
            exported.eval_mode.forward(obs_trees.index(obs, slice(1, 65))), action[1:65], atol=2e-5
        )
        np.testing.assert_allclose(one.policy.eval_mode.forward(obs), action, rtol=1e-6)
    parity = compare(one.policy, outputs, obs, memory)
    assert (parity.count, parity.other_actions, parity.holds) == (1000, 0, True)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_remembers_and_forgets_as_the_policy_does(file_format, made, export):
    one, exported = made("ppo, memory"), ExportedPolicy(export("ppo, memory", file_format))
    assert (exported.description["inputs"][-1]["name"], exported.description["memory"]) == ("memory", 5)
    exported.reset()
    one.policy.eval_mode.reset()
    memory = one.policy.actors["eval"].memory
    for t in range(6):
        obs = observation(one.space, 4, seed=t)
        if t == 3:
            exported.reset([1, 2])
            one.policy.eval_mode.reset([1, 2])
        if t in (0, 3):
            assert np.array_equal(memory.rows(4).any(axis=1), [t > 0, False, False, t > 0])
        assert np.array_equal(exported.forward(obs), one.policy.eval_mode.forward(obs))
        np.testing.assert_allclose(
            exported.outputs(obs)["next_memory"], one.policy.actors["eval"].outputs(obs)[-1], atol=1e-5
        )
    with pytest.raises(ShapeError, match=r"remembers 4 environments and was given 3 observations: .*call reset\(\)"):
        exported.forward(observation(one.space, 3))
    one.policy.eval_mode.reset()


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_graph_that_computes_something_else_is_not_written(file_format, made, tmp_path, monkeypatch):
    one = made("sac")
    monkeypatch.setattr(type(one.policy.net), "decision", Decision(0, "mean", squash=False))
    path = tmp_path / f"unsquashed.{file_format}"
    with pytest.raises(ExportError, match="sac: the exported graph does not compute what the policy computes"):
        export_policy(one.policy, path, file_format, info={})
    assert list(tmp_path.iterdir()) == []


TEAMS = {
    # A value of the whole team is left out.
    "mappo": (discrete(3), GRU, ["obs.agent_id", "memory"], ["logits", "next_memory"]),
    "coma": (discrete(3), {"policy.model.memory_dim": 5}, ["obs.agent_id", "memory"], ["logits", "next_memory"]),
    "maddpg": (discrete(3), {}, ["obs.agent_id"], ["logits"]),
    "maddpg, box": (space_of(2), {}, ["obs.agent_id"], ["policy_action"]),
    "masac, box": (space_of(2), {}, ["obs.agent_id"], ["policy_action"]),
}


@pytest.mark.parametrize("case", TEAMS)
def test_a_file_of_a_team_acts_for_one_agent(case, tiny_config, tmp_path):
    action, settings, reads, writes = TEAMS[case]
    masked = {"action_mask": mask_of(3)} if action["kind"] == "discrete" else {}
    algorithm, seen = case.partition(",")[0], dict_of(observation=VECTOR, **masked)
    policy = get_policy_class(algorithm)(tiny_config(algorithm, seen, action, **settings), modes=("eval",))
    description = export_policy(policy, tmp_path / "agent.mindir", "mindir", info={})
    inputs = [f"obs.{name}" for name in seen["spaces"]]
    assert {each["name"] for each in description["inputs"]} == {*inputs, *reads}
    assert [each["name"] for each in description["outputs"]] == ["action", *writes]


# What the comparison counts


def test_another_action_counts_only_where_the_best_is_clear(made, export):
    one = made("dqn, dueling")
    obs = observation(one.space, 10)
    outputs = ExportedPolicy(export("dqn, dueling", "onnx")).outputs(obs)
    outputs["action"][[2, 5]] += 1
    assert compare(one.policy, outputs, obs).other_actions == 2
    # Both sides say the same of the scores, and two of them are equal: either action is right.
    policy = one.policy
    kept = {name: p.asnumpy().copy() for name, p in policy.params.items()}
    for name, p in policy.params.items():
        if "advantage" in name:
            assign(p, np.zeros(p.shape, np.float32))
    outputs["q_values"] = policy.actors["eval"].outputs(obs)[0]
    assert compare(policy, outputs, obs).other_actions == 0
    for name, p in policy.params.items():
        assign(p, kept[name])


def test_nan_and_another_shape_never_pass(made, export):
    one = made("dqn, dueling")
    obs = observation(one.space, 10)
    outputs = ExportedPolicy(export("dqn, dueling", "onnx")).outputs(obs)
    assert compare(one.policy, outputs, obs).holds
    outputs["q_values"][3, 1] = np.nan
    assert not compare(one.policy, outputs, obs).holds
    outputs["q_values"] = outputs["q_values"][:1]
    assert compare(one.policy, outputs, obs).difference == float("inf")
    box = made("sac")
    outputs = ExportedPolicy(export("sac", "onnx")).outputs(obs)
    outputs["action"][3, 1] = np.nan
    assert not compare(box.policy, outputs, obs).holds


def test_an_operator_that_a_format_lacks_is_one_error(made, tmp_path, monkeypatch):
    def tanh_by_expm1(self, x):
        e = ops.expm1(2.0 * x)
        return e / (e + 2.0)

    monkeypatch.setattr(export_module.Tanh, "construct", tanh_by_expm1)
    one = made("sac")
    with pytest.raises(ExportError, match=r"sac: no onnx of this network: .*Expm1.*; try the other format"):
        export_policy(one.policy, tmp_path / "policy.onnx", "onnx", info={})
    assert list(tmp_path.iterdir()) == []


# Files


def test_the_description_says_what_goes_in_and_what_comes_out(made, export):
    path = export("dqn, dict", "onnx")
    described = json.loads(path.with_name(f"{path.name}.json").read_text())
    assert described["algorithm"] == "dqn, dict"
    assert described["inputs"] == [
        {"name": "obs.a", "dtype": "float32", "shape": ["batch", 4]},
        {"name": "obs.b", "dtype": "int64", "shape": ["batch"]},
        {"name": "obs.c", "dtype": "int64", "shape": ["batch", 2]},
        {"name": "obs.d", "dtype": "int32", "shape": ["batch", 2, 2]},
        {"name": "obs.e", "dtype": "int8", "shape": ["batch", 3]},
    ]
    assert described["outputs"] == [
        {"name": "action", "dtype": "int32", "shape": ["batch"]},
        {"name": "q_values", "dtype": "float32", "shape": ["batch", 2]},
    ]
