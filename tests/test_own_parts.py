"""Parts of one's own that settings name: they train, resume and are loaded, and are refused from others."""

import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from of_algorithms import SMALL

import minding
from minding.cli import run as command
from minding.engine.config.named import CODE_KEYS
from minding.engine.errors import ConfigError, ExportError, notes_of
from minding.engine.process.runtime import ms
from minding.engine.run.metrics import read_metrics
from minding.engine.run.run_dir import RunDir
from minding.policies import get_algorithm, get_policy_class
from minding.policies.acting.numpy_layers import ACTIVATIONS
from minding.policies.networks import layers
from minding.training import export_run

pytestmark = pytest.mark.eager

SHORT = (
    *SMALL, "policy.collect.n_sample=64", "policy.learn.n_epoch=1", "policy.learn.n_minibatch=2", "run.max_env_step=128"
)  # fmt: skip


def agent(tmp_path, algorithm="ppo", *settings, **keys):
    settings = [f"run.out_dir={tmp_path}", *SHORT, *settings]
    return minding.Agent(algorithm, "CartPole-v1", settings=settings, progress=False, **keys)


@pytest.mark.shared_graphs
@pytest.mark.parametrize(("encoder", "in_numpy"), [("Plain", False), ("Both", True), ("Layered", True)])
def test_an_encoder_trains_resumes_and_is_loaded(encoder, in_numpy, tmp_path):
    made = agent(tmp_path, encoder=f"own_parts:{encoder}")
    assert made.policy.acting.in_numpy == in_numpy
    before = made.policy.net.encoder.cell.weight.weight.asnumpy().copy()
    made.learn(128)
    assert not np.array_equal(made.policy.net.encoder.cell.weight.weight.asnumpy(), before)
    made.close()
    again = minding.load(made.run_dir, trust=True, progress=False)
    assert again.learn(64).env_step == 192
    obs = np.random.default_rng(0).normal(size=(20, 4))
    saved = again.save(tmp_path / "saved", evaluate=0)
    assert np.array_equal(minding.load(saved, trust=True, progress=False).predict(obs), again.predict(obs))
    again.close()


def test_a_numpy_form_with_copied_weights_is_not_used(tmp_path, caplog):
    assert not agent(tmp_path, encoder="own_parts:Copied").policy.acting.in_numpy
    assert "holds copies of parameters. Learning changes them in place" in caplog.text
    with pytest.raises(ConfigError, match=r"holds copies of parameters.*: use 'auto' or 'graph'"):
        agent(tmp_path, "ppo", "policy.collect.backend=numpy", encoder="own_parts:Copied").policy  # noqa: B018


def test_a_resume_tells_if_an_own_parts_code_has_changed(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="minding")
    file = tmp_path / "edited_parts.py"
    file.write_text("from own_parts import Count\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = agent(tmp_path, "ppo", "use=['edited_parts:Count']")
    made.learn(64)
    made.close()
    file.write_text("# Edited.\n" + file.read_text())
    again = minding.load(made.run_dir, trust=True, progress=False)
    again.learn(64)
    again.close()
    assert re.search(r"resumed .* at env_step 64 \(exact, but the code of edited_parts has changed\)", caplog.text)


def drawn(tmp_path, *settings):
    """The parameters of a policy whose cells draw from the global streams, and the seed of its dropout."""
    policy = agent(tmp_path, "own_parts:OfDrawn", *settings, encoder="own_parts:Drawn").policy
    return [p.asnumpy().copy() for p in policy.params.values()], policy.net.encoder.cell.dropout.dropout.Seed0


def test_own_cells_start_as_the_seed_says(tmp_path):
    global_seed = ms.get_seed()
    streams = np.random.get_state()[1].tolist(), random.getstate()
    first, dropout = drawn(tmp_path)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == streams
    assert ms.get_seed() == global_seed
    np.random.normal()
    again, same = drawn(tmp_path)
    assert dropout == same != 0
    for here, there in zip(first, again, strict=True):
        np.testing.assert_array_equal(here, there)
    other, _ = drawn(tmp_path, "seed=1")
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("file_format", ["mindir", "onnx"])
def test_an_exported_file_acts_as_the_policy_or_is_not_written(file_format, tmp_path, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    made = {encoder: agent(tmp_path, encoder=f"own_parts:{encoder}") for encoder in ("Plain", "Branches")}
    for each in made.values():
        each.learn(64)
        each.close()
    run = RunDir.open(made["Plain"].run_dir, trust=True)
    path = export_run(run, file_format, None, None).path
    assert command(["eval", str(run.path), "--exported", str(path), "--episodes=2", "--trust"]) == 0
    assert "parity: 1,000 observations" in capsys.readouterr().out
    run = RunDir.open(made["Branches"].run_dir, trust=True)
    with pytest.raises(ExportError, match=r"does not compute what the policy computes|no onnx of this network"):
        export_run(run, file_format, None, None)
    assert not (run.path / f"policy.{file_format}").exists()


def test_an_encoder_trains_and_is_evaluated_in_a_new_lane(tmp_path, printed):
    settings = [
        "--env=CartPole-v1", "--async", f"run.out_dir={tmp_path}", "exp_name=own", "run.max_env_step=256",
        "policy.model.encoder=own_parts:Plain", "policy.learn.warmup=64", "policy.learn.batch_size=16", *SMALL,
    ]  # fmt: skip
    place = {"cwd": Path(__file__).parent, "capture_output": True, "text": True}
    program = [sys.executable, "-m", "minding", "train", "dqn", *settings]
    trained = subprocess.run(program, **place, check=False)
    assert trained.returncode == 0, trained.stderr
    assert "return" in printed("eval", tmp_path / "own", "--episodes=2", "--trust")


@pytest.mark.parametrize(("encoder", "message"), [("BrokenForm", "the NumPy form failed"), ("NoForm", "`host` failed")])
def test_a_failing_numpy_form_is_told_with_its_place(encoder, message, tmp_path, caplog):
    assert not agent(tmp_path, encoder=f"own_parts:{encoder}").policy.acting.in_numpy
    assert re.search(rf"{message}: .*own_parts.py:\d+ in ", caplog.text)


@pytest.mark.shared_graphs
def test_a_loss_that_does_not_compile_is_one_line_with_its_place(tmp_path, capfd):
    short = [f"run.out_dir={tmp_path}", *SHORT, "run.loggers=[]"]
    assert command(["train", "own_parts:Uncompiled", "--env=CartPole-v1", "--no-progress", *short]) == 2
    said, where = capfd.readouterr().err.splitlines()
    assert re.match(r"minding: own_parts:UncompiledCell does not compile: .* \(\S+own_parts.py:\d+\)$", said)
    assert where.startswith("  in middleware 'multistep_trainer'")


OFF_POLICY = (
    "policy.learn.warmup=32", "policy.learn.batch_size=8", "policy.collect.n_sample=16", "run.max_env_step=128", *SMALL,
)  # fmt: skip


def learner_of(made):
    return next(member for member in made._run.session.task.members if type(member).__name__ == "OffPolicyLearner")


@pytest.mark.parametrize("buffer", ["RecentBuffer", "ByError"])
def test_an_own_replay_buffer_is_filled_saved_and_resumed(buffer, tmp_path, caplog):
    caplog.set_level("INFO", logger="minding")
    setting = f"policy.other.replay=own_parts:{buffer}"

    def train(steps, folder):
        keys = [f"run.out_dir={tmp_path / folder}", setting, *OFF_POLICY]
        made = minding.Agent("dqn", "CartPole-v1", settings=keys, progress=False)
        made.learn(steps, total=128)
        return made

    whole, first = train(128, "whole"), train(64, "half")
    held = learner_of(whole)._buffer
    assert (type(held).__name__, len(held)) == (buffer, 128)
    if buffer == "ByError":
        assert len(set(held.state_dict()["priorities"].tolist())) > 10
    first.close()
    again = minding.load(first.run_dir, trust=True, progress=False)
    again.learn(total=128)
    assert "at env_step 64 (exact)" in caplog.text
    for name, value in whole.policy.params.items():
        np.testing.assert_array_equal(value.asnumpy(), again.policy.params[name].asnumpy())
    whole.close()
    again.close()


@pytest.mark.parametrize("key", [key for key in CODE_KEYS if key != "env.env_id"])
@pytest.mark.parametrize("name", ["users:Nope", "nowhere:X", "users_broken:X"])
def test_missing_code_is_bad_input_before_writing(key, name, tmp_path, monkeypatch, capsys):
    (tmp_path / "users.py").write_text("class Here:\n    pass\n")
    (tmp_path / "users_broken.py").write_text("class X\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "users", raising=False)
    given = (
        [name]
        if key == "policy.type"
        else ["dqn", f"{key}=['{name}']" if key in ("use", "run.loggers") else f"{key}={name}"]
    )
    assert command(["train", *given, "--env=CartPole-v1", "exp_name=run"]) == 2
    said = capsys.readouterr().err
    assert re.search(r"has no 'Nope'|there is no module 'nowhere'|users_broken.py, line 1", said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.shared_graphs
def test_an_algorithm_a_chain_and_middleware_resume_together(tmp_path, caplog):
    caplog.set_level("INFO", logger="minding")
    use = (
        "use=['own_parts:Count', {call: 'own_parts:seen', before: multistep_trainer, role: collect}, 'own_parts:made']"
    )
    made = agent(tmp_path, "own_parts:MyPPO", "chain=own_parts:my_chain", use)
    assert type(made.policy).__name__ == "MyPPO"
    made.learn(128)
    chain = str(made)
    assert chain.index("seen") < chain.index("multistep_trainer") < chain.index("Count")
    made.close()
    again = minding.load(made.run_dir, trust=True, progress=False)
    again.learn(128)
    again.close()
    assert "at env_step 128 (exact)" in caplog.text
    rows = read_metrics(again.run_dir / "metrics.csv")["train/count"]
    # The mean of 1, 2, and, after the resume, 3 and 4.
    assert rows[np.isfinite(rows)].tolist() == [2.5]


@pytest.mark.parametrize(
    ("name", "mistake", "place"),
    [("Forgetful", "KeyError: 'counts'", "own_parts.py:"), ("Deaf", "TypeError: .*takes 1 positional", "")],
)
def test_a_mistake_in_resumed_own_middleware_is_no_damage(name, mistake, place, tmp_path, caplog):
    made = agent(tmp_path, "ppo", f"use=['own_parts:{name}']")
    made.learn(64)
    made.close()
    again = minding.load(made.run_dir, trust=True, progress=False)
    with pytest.raises((KeyError, TypeError)) as caught:
        again.learn(64)
    assert re.match(mistake, f"{type(caught.value).__name__}: {caught.value}")
    assert any(f"load_state_dict() of middleware '{name}'" in note and place in note for note in notes_of(caught.value))
    assert "damaged" not in caplog.text


def test_an_own_algorithm_has_the_defaults_of_its_base():
    own, entry = get_algorithm("own_parts:MyPPO"), get_algorithm("ppo")
    assert (own.name, own.actions, own.chain) == ("own_parts:MyPPO", entry.actions, entry.chain)
    kind = get_policy_class("own_parts:MyPPO")
    assert kind.name == "mine"
    assert kind.default_config() == get_policy_class("ppo").default_config()


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_an_activation_is_its_formula_in_both_forms(name):
    x = np.concatenate([np.linspace(-6.0, 6.0, 61), [-90.0, 90.0]])
    x = x[np.abs(x) > 1e-3]
    formula = FORMULAS[name](x)
    cell, single = layers.ACTIVATIONS[name](), x.astype(np.float32)
    graph = cell(ms.Tensor(single)).asnumpy()
    out = single.copy()
    ACTIVATIONS[name](out, out)
    # MindSpore's own tanh is less exact.
    np.testing.assert_allclose(graph, formula, atol=2e-4 if name == "tanh" else 2e-6, rtol=2e-6)
    np.testing.assert_allclose(out, formula, atol=2e-6, rtol=2e-6)
    gradient = ms.grad(lambda values: cell(values).sum())(ms.Tensor(single)).asnumpy()
    assert np.isfinite(gradient).all()
    if name in ("silu", "gelu", "elu"):
        near, step = np.abs(x) < 6.0, 1e-3
        slope = (FORMULAS[name](x + step) - FORMULAS[name](x - step)) / (2.0 * step)
        np.testing.assert_allclose(gradient[near], slope[near], atol=1e-3)
