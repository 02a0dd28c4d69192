"""A run asks its chain what it runs on."""

import signal

import pytest

from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.checkpoint import newest_checkpoint
from minding.engine.errors import ConfigError
from minding.engine.run.run_dir import RunDir
from minding.engine.run.status import read_status
from minding.training import session

pytestmark = pytest.mark.eager


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_ends_the_callers_loop_once_the_run_is_saved(number, error, monkeypatch, tmp_path, caplog):
    build = session.build

    def build_and_signal(task, cfg, policy):
        # Before the first graph runs: MindSpore turns SIGINT into SIGTERM in each.
        task.use(lambda ctx: signal.raise_signal(number))
        return build(task, cfg, policy)

    monkeypatch.setattr(session, "build", build_and_signal)
    small = [
        "policy.model.hidden=[8]",
        "policy.collect.n_sample=64",
        "env.collector_env_num=2",
        "policy.learn.n_epoch=1",
    ]
    cfg = compile_run(
        Config(env={"env_id": "CartPole-v1"}, policy={"type": "ppo"}), [f"run.out_dir={tmp_path}", *small]
    )
    begun = []

    def loop():
        for _ in range(3):
            begun.append(RunDir.create(cfg))
            training.train(cfg, begun[-1], progress=False)

    with pytest.raises(error) as raised:
        loop()
    assert len(begun) == 1
    assert newest_checkpoint(begun[0].checkpoints)
    assert f"ended by {number.name}: the run is saved in {begun[0].path}" in caplog.text
    ended = read_status(begun[0].status)
    assert (ended.state, ended.reason, ended.iteration, ended.env_step) == ("ended", number.name, 1, 64)
    if error is SystemExit:
        assert raised.value.code == 143
    summary = training.train(cfg, RunDir.create(cfg), progress=False, raise_signals=False)
    assert summary.stop_reason == number.name


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("learning_rat", 0.5, "did you mean 'learning_rate'"), ("gamma", 5.0, r"expected a number in \[0, 1\]")],
)
def test_what_a_script_sets_late_is_checked_before_training(key, value, message):
    cfg = compile_run("cartpole_ppo")
    cfg.policy.learn[key] = value
    with pytest.raises(ConfigError, match=message):
        training.check_runnable(cfg)
