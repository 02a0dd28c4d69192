"""A disk that is full, read-only, or loses a folder during a run: training goes on, and the last good checkpoint stays.

The disk is a small file system in memory, which only root may mount; elsewhere these tests are skipped, and those of
the single parts with failing system calls remain.
"""

import logging
import shutil
import subprocess

import pytest
from fakes import Weights

from minding.engine import Config, OnlineRLContext, RunDir, Task
from minding.engine.checkpoint import list_checkpoints, load_checkpoint, newest_checkpoint, verify_checkpoint
from minding.middleware import CkptSaver
from minding.middleware.online_logger import online_logger

# float64 numbers in the policy: a checkpoint takes 80 kB of the disk's 1 MB.
SIZE = 10_000
NOTHING = Config(policy={"type": "none"}, env={"env_id": "none"})


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(disk):
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def remount(disk, option):
    subprocess.run(["mount", "-o", f"remount,{option}", disk], check=True)


def train(disk, events, iterations=60, loggers=("tensorboard",)):
    """Ten gradient steps an iteration, a checkpoint and two rows of metrics every second one; `events` by iteration."""
    weights, out = Weights(NOTHING, SIZE), disk / "runs"
    cfg = Config(run={"max_env_step": 10**6, "metrics_freq": 10, "loggers": loggers, "log_freq": 0.5})

    def learn(ctx):
        events.get(ctx.total_step, lambda: None)()
        ctx.train_iter += 10
        ctx.env_step += 10
        # Rows of some 200 bytes: more of them than what a full disk's last page still takes.
        ctx.train_output = {f"metric_{number}": 1 / 3 for number in range(10)}
        weights.value += 10

    with Task().start(ctx=OnlineRLContext()) as task:
        task.use(learn)
        task.use(CkptSaver(weights, "run", train_freq=20, keep_last=2, out_dir=out, task=task))
        task.use(online_logger(cfg, out / "run", progress=False))
        task.run(max_step=iterations)
        assert task.ctx.total_step == iterations
    return RunDir(out / "run")


def newest_value(run_dir):
    """What the newest checkpoint holds; all checkpoints must be whole."""
    for path in list_checkpoints(run_dir.checkpoints):
        verify_checkpoint(path)
    state, manifest = load_checkpoint(newest_checkpoint(run_dir.checkpoints))
    assert (state["policy"]["params"]["net.w"] == manifest["train_iter"]).all()
    return manifest["train_iter"]


FAULTS = {
    "full": (fill, lambda disk: (disk / "filler").unlink(), "No space left on device"),
    "read-only": (lambda disk: remount(disk, "ro"), lambda disk: remount(disk, "rw"), "Read-only file system"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_costs_no_step_and_no_checkpoint(disk, fault, caplog):
    begin, end, reason = FAULTS[fault]
    # A file system with a file open for writing cannot be made read-only.
    run_dir = train(disk, {11: lambda: begin(disk)}, loggers=["tensorboard"] * (fault == "full"))
    assert newest_value(run_dir) == 100
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    # One for each checkpoint from gradient step 120 to 600, for the one at the end, and for the status; of the metrics
    # one when they can no longer be written, and one when the last of them are lost.
    assert sum("was not written" in record.getMessage() for record in warnings) == 27
    assert reason in caplog.text
    assert sum(str(run_dir.metrics) in record.getMessage() for record in warnings) == 2
    assert len(run_dir.metrics.read_text().splitlines()) < 60
    end(disk)


@pytest.mark.parametrize("fault", FAULTS)
def test_once_the_disk_works_again_everything_is_written_again(disk, fault, caplog):
    begin, end, _ = FAULTS[fault]
    run_dir = train(disk, {11: lambda: begin(disk), 31: lambda: end(disk)}, loggers=["tensorboard"] * (fault == "full"))
    assert newest_value(run_dir) == 600
    assert len(list_checkpoints(run_dir.checkpoints)) == 2
    rows = run_dir.metrics.read_text().splitlines()[1:]
    # None of the rows in between is lost.
    assert [row.split(",")[0] for row in rows] == [str(10 * number) for number in range(1, 61)]


@pytest.mark.parametrize("name", ["tensorboard", "metrics", "checkpoints", "path"])
def test_what_is_removed_comes_back_and_training_goes_on(tmp_path, name):
    def remove():
        path = getattr(RunDir(tmp_path / "runs" / "run"), name)
        path.unlink() if path.is_file() else shutil.rmtree(path)

    run_dir = train(tmp_path, {21: remove}, iterations=40)
    assert newest_value(run_dir) == 400
    assert run_dir.metrics.read_text().splitlines()[-1].startswith("400,")
    assert list(run_dir.tensorboard.iterdir())
