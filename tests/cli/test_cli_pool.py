"""The pool of a run is listed and pinned from the command line, and its versions play, are filmed and exported."""

from pathlib import Path

import numpy as np
import pytest

from minding import training
from minding.cli import run
from minding.configs import compile_run
from minding.engine.run.pool import ModelPool
from minding.engine.run.run_dir import RunDir


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """A run folder without checkpoints, and a pool of three versions: the second one always pushes to the left."""
    out = tmp_path_factory.mktemp("pool")
    cfg = compile_run("cartpole_ppo", [f"run.out_dir={out}", "pool.freq=10", "policy.model.hidden=[4]"])
    run_dir = RunDir.create(cfg)
    arrays, network = training.make_policy(cfg, modes=("eval",)).acting_arrays()
    zeros = {name: np.zeros_like(array) for name, array in arrays.items()}
    pool = ModelPool(run_dir.models)
    for score, each in ((None, arrays), (9.5, zeros), (8.0, arrays)):
        pool.add(each, 10, 1000, score, network=network)
    return str(run_dir.path)


def test_versions_are_listed_and_pinned(pooled, capsys, refused, printed):
    assert run(["pool", pooled, "--pin", "1", "--pin", "3"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][-2:] == ["3", "versions"]
    assert lines[1] == ["version", "iteration", "env", "step", "score", "pinned", "size"]
    assert [line[:2] for line in lines[2:]] == [["1", "10"], ["2", "10"], ["3", "10"]]
    assert lines[2][3] == "yes"
    assert lines[3][3] == "9.5"
    assert lines[4][2:5] == ["1,000", "8", "yes"]
    assert printed("pool", pooled, "--unpin", "3").count("yes") == 1
    file = ModelPool(RunDir(Path(pooled)).models).find(3).path
    data = file.read_bytes()
    file.unlink()
    assert printed("pool", pooled).splitlines()[-1].split()[-1] == "missing"
    file.write_bytes(data)
    assert "holds no version 7; the nearest of its 3 is 3" in refused("pool", pooled, "--pin", "7")


def test_a_version_plays(pooled, printed):
    constant = printed("eval", pooled, "--model", "best", "--episodes", "4")
    # What always pushes to one side falls at once.
    assert float(constant.split("return ")[1].split()[0]) < 11
    assert printed("eval", pooled, "--model", "3", "--episodes", "4") != constant


def test_a_version_is_filmed_and_exported(pooled, printed, monkeypatch, tmp_path):
    taken = []
    monkeypatch.setattr(training, "record", lambda *args, ckpt, **kwargs: taken.append(ckpt.number) or [])
    assert run(["record", pooled, "--model", "2", "--out", str(tmp_path / "film.gif")]) == 0
    assert taken == [2]
    assert "p.onnx: ppo on CartPole-v1, version_3" in printed(
        "export", pooled, "--model", "latest", "--format", "onnx", "--out", tmp_path / "p.onnx"
    )
