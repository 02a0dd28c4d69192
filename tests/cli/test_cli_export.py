"""`minding export` and `minding eval --exported`, on runs whose policies were never trained."""

import json

import numpy as np
import pytest

from minding import training
from minding.cli import run
from minding.configs import compile_run
from minding.engine import Config, RunDir
from minding.engine.checkpoint import save_checkpoint
from minding.engine.config.identity import identity

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RUNS = {
    "cartpole": {
        "env": {"env_id": "CartPole-v1", "evaluator_env_num": 4},
        "policy": {"type": "ppo", "model": {"hidden": [8], "normalize_obs": True}},
    },
    "pendulum": {
        "env": {"env_id": "Pendulum-v1", "evaluator_env_num": 4, "max_episode_steps": 20},
        "policy": {"type": "sac", "model": {"hidden": [8]}, "collect": {"n_sample": 8}},
    },
    "catch": {
        "env": {"env_id": "minding/PixelCatch-v0", "evaluator_env_num": 4},
        "policy": {"type": "ppo", "model": {"hidden": [8], "cnn_dim": 8}},
    },
}


def save(run_dir, policy, step):
    info = {"train_iter": step, "identity": identity(policy.config)}
    save_checkpoint(run_dir.checkpoints / f"iter_{step}", {"policy": policy.state_dict()}, info)


@pytest.fixture
def make_run(tmp_path):
    """A run folder with one checkpoint of an untrained policy, which has seen some observations."""

    def make(name):
        cfg = compile_run(Config({**RUNS[name], "exp_name": name, "run": {"out_dir": str(tmp_path)}}))
        policy = training.make_policy(cfg, modes=("eval",))
        for _, normalizer in policy.normalizers.values():
            normalizer.update(0.1 * np.random.default_rng(0).standard_normal((20, normalizer.center.size)) + 0.05)
        run_dir = RunDir.create(cfg)
        save(run_dir, policy, 3)
        return run_dir, policy

    return make


@pytest.mark.parametrize(
    ("name", "file_format"),
    [
        ("cartpole", "onnx"),
        ("pendulum", "mindir"),
        pytest.param("catch", "onnx", marks=pytest.mark.slow),
        pytest.param("catch", "mindir", marks=pytest.mark.slow),
    ],
)
def test_an_exported_file_plays_as_the_policy_of_its_run(name, file_format, make_run, capsys, printed):
    run_dir, _ = make_run(name)
    folder = str(run_dir.path)
    assert run(["export", folder, "--format", file_format]) == 0
    file = run_dir.path / f"policy.{file_format}"
    lines = capsys.readouterr().out.splitlines()
    algorithm, env_id = RUNS[name]["policy"]["type"], RUNS[name]["env"]["env_id"]
    assert lines[0] == f"{file}: {algorithm} on {env_id}, iter_3"
    exported = printed("eval", folder, "--exported", file, "--episodes", "4").splitlines()
    assert exported[0].startswith("parity: 1,000 observations, largest difference ")
    assert exported[0].endswith("(limit 1e-05), 0 other actions")
    assert printed("eval", folder, "--episodes", "4").splitlines() == exported[1:]


def test_the_description_holds_the_limits_of_the_environment(make_run, tmp_path, printed):
    run_dir, _ = make_run("pendulum")
    out = tmp_path / "elsewhere" / "torque.onnx"
    assert "  output action: float32 (batch, 1)\n  output policy_action: float32 (batch, 1)" in printed(
        "export", run_dir.path, "--format", "onnx", "--out", out
    )
    description = json.loads((out.parent / "torque.onnx.json").read_text())
    assert description["env_id"] == "Pendulum-v1"
    limits = {"low": -2.0, "high": 2.0, "rescaled": True}
    assert description["action_space"] == {"kind": "box", "shape": [1], "dtype": "float32", **limits}
    assert description["checkpoint"] == "iter_3"
    assert {"minding", "mindspore", "numpy"} <= set(description["versions"])


def test_a_named_checkpoint_plays_as_when_it_was_the_newest(make_run, printed):
    run_dir, policy = make_run("cartpole")
    play = ["eval", str(run_dir.path), "--episodes", "4"]
    before = printed(*play)
    for p in policy.params.values():
        p.asnumpy()[...] *= -1.0
    save(run_dir, policy, 4)
    assert printed(*play, "--ckpt", run_dir.checkpoints / "iter_3") == before
    assert printed(*play) != before


def test_a_file_of_an_older_checkpoint_is_exit_code_1(make_run, capsys):
    run_dir, policy = make_run("cartpole")
    assert run(["export", str(run_dir.path), "--format", "onnx"]) == 0
    for p in policy.params.values():
        p.asnumpy()[...] *= 1.5
    save(run_dir, policy, 4)
    capsys.readouterr()
    file = str(run_dir.path / "policy.onnx")
    assert run(["eval", str(run_dir.path), "--exported", file, "--episodes", "4"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("parity: 1,000 observations")
    assert "(of iter_3) does not act as the newest policy of" in captured.err
    assert "return" not in captured.out


def test_a_file_of_another_environment_is_refused(make_run, capsys):
    cartpole, pendulum = make_run("cartpole")[0], make_run("pendulum")[0]
    assert run(["export", str(pendulum.path), "--format", "onnx"]) == 0
    assert run(["eval", str(cartpole.path), "--exported", str(pendulum.path / "policy.onnx")]) == 1
    assert "its algorithm is 'sac', but the run" in capsys.readouterr().err
