"""Which policies of run folders are built and played."""

import re
import shutil

import numpy as np
import pytest
from of_algorithms import SMALL

import minding
from minding import training
from minding.cli import run
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.checkpoint import save_checkpoint
from minding.engine.config.compiler import load_config
from minding.engine.config.identity import identity
from minding.engine.errors import CheckpointError, ConfigError, notes_of
from minding.engine.process import runtime
from minding.engine.run.run_dir import RunDir
from minding.training import loading


class Policy:
    """Takes what it is given, as a policy with other parameters would not."""

    def __init__(self, cfg, modes):
        self.config = cfg

    def load_state_dict(self, state):
        self.weight = float(state["params"]["w"][0])


@pytest.fixture
def built(monkeypatch):
    made = []
    monkeypatch.setattr(loading, "make_policy", lambda cfg, modes: made.append(Policy(cfg, modes)) or made[-1])
    return made


@pytest.fixture
def make_run(tmp_path):
    """Run folders with checkpoints 1 and 2, whose policies are these numbers."""

    def make(name, *overrides, algorithm="ppo"):
        user = Config(exp_name=name, env={"env_id": "CartPole-v1"}, policy={"type": algorithm})
        cfg = compile_run(user, [f"run.out_dir={tmp_path}", *overrides])
        run_dir = RunDir.create(cfg)
        for step in (1, 2):
            save(run_dir, step, [step], identity(cfg))
        return run_dir

    return make


def save(run_dir, step, weight, whose):
    state = {"policy": {"params": {"w": np.array(weight, np.float32)}}}
    path = run_dir.checkpoints / f"iter_{step}"
    shutil.rmtree(path, ignore_errors=True)
    save_checkpoint(path, state, {"train_iter": step, "identity": whose})
    return path


def test_the_newest_policy_of_the_run_is_loaded(make_run, built):
    cfg, policy, ckpt = training.load_policy(make_run("run"))
    assert (policy.weight, ckpt.name, cfg.policy.type) == (2.0, "iter_2", "ppo")
    assert training.load_policy(RunDir(ckpt.parent.parent), ckpt.with_name("iter_1")).policy.weight == 1.0


@pytest.mark.parametrize(
    ("overrides", "algorithm", "message"),
    [
        (["policy.model.normalize_obs=false"], "ppo", r"policy\.model\.normalize_obs is False there and True here"),
        (["policy.collect.n_sample=8"], "dqn", r"policy\.type is 'dqn' there and 'ppo' here"),
        (["env.env_id=Acrobot-v1"], "ppo", r"env\.env_id is 'Acrobot-v1' there"),
    ],
)
def test_the_checkpoint_of_another_run_is_not_played(make_run, built, overrides, algorithm, message, capsys):
    mine, other = make_run("mine"), make_run("other", *overrides, algorithm=algorithm)
    with pytest.raises(CheckpointError, match=message):
        training.load_policy(mine, other.checkpoints / "iter_2")
    assert built == []
    for command in (["eval"], ["export", "--format", "mindir"]):
        # 2 only where MindSpore is not loaded yet, which tests before this one may have done.
        code = 1 if runtime.is_loaded() else 2
        assert run([*command, str(mine.path), "--ckpt", str(other.checkpoints / "iter_2")]) == code
        assert "belongs to another run" in capsys.readouterr().err


def test_a_policy_with_nan_is_not_played_but_the_one_before_it(make_run, built, caplog):
    run_dir = make_run("run")
    path = save(run_dir, 2, [float("nan")], identity(load_config(run_dir.config)))
    assert training.load_policy(run_dir).policy.weight == 1.0
    assert "policy/params/w is NaN or infinite" in caplog.text
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        training.load_policy(run_dir, path)


def test_a_state_that_fits_its_checksums_and_no_policy_is_damage(make_run, caplog):
    run_dir = make_run("run", *SMALL)
    cfg = load_config(run_dir.config)
    whole = loading.make_policy(cfg, ("eval",)).state_dict()
    for step, state in ((1, whole), (2, {"params": {}})):
        shutil.rmtree(run_dir.checkpoints / f"iter_{step}")
        info = {"train_iter": step, "identity": identity(cfg)}
        save_checkpoint(run_dir.checkpoints / f"iter_{step}", {"policy": state}, info)
    assert training.load_policy(run_dir).ckpt.name == "iter_1"
    assert "its contents are not those of a run (KeyError: 'network')" in caplog.text


def test_a_mistake_in_a_policy_of_ones_own_is_no_damage(make_run, built, monkeypatch, caplog):
    run_dir = make_run("run")
    save(run_dir, 2, [], identity(load_config(run_dir.config)))
    with pytest.raises(IndexError) as caught:
        training.load_policy(run_dir)
    assert re.match(r"in load_state_dict\(\) of the policy \(.*test_loading.py:\d+ in", notes_of(caught.value)[0])
    # A method with other arguments fails before its first line.
    monkeypatch.setattr(Policy, "load_state_dict", lambda self: None)
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        training.load_policy(run_dir)
    assert caplog.text == ""


@pytest.mark.parametrize("share", [0.6, 0.67, 0.95])
def test_a_truncated_configuration_is_refused_with_its_keys(share, make_run, built, capsys):
    run_dir = make_run("cut")
    cfg = run_dir.load_config()
    state = {"policy": {"params": {"w": np.zeros(1, np.float32)}}, "config": cfg}
    save_checkpoint(run_dir.checkpoints / "iter_3", state, {"train_iter": 3, "identity": identity(cfg)})
    assert loading.load_policy(run_dir).ckpt.name == "iter_3"
    text = run_dir.config.read_text()
    run_dir.config.write_text(text[: text.index("\n", int(share * len(text)))] + "\n")
    for use in (lambda: loading.load_policy(run_dir), lambda: minding.load(run_dir.path)):
        with pytest.raises(ConfigError, match=r"lacks policy\..*iter_3: .*cut off"):
            use()
    assert run(["resume", str(run_dir.path)]) == 2
    assert "lacks policy." in capsys.readouterr().err
