"""Commands that look at a run, also while it trains: `minding status` and `minding pool`."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import click

from minding.cli.common import COUNT, RunFolder, bad_input, command, echo, line, print_lines

if TYPE_CHECKING:
    from minding.engine.chain.lanes import WorkerStatus
    from minding.engine.run.run_dir import RunDir
    from minding.engine.run.status import RunStatus


@command(examples=("status runs/cartpole_ppo", "status runs/cartpole_ppo-seeds"))
@click.argument("run", type=RunFolder())
def status(run: str) -> None:
    """Print the progress of a run, and the state of its workers.

    This also works for a run that has ended, or whose process was killed. A folder of seeds stands for the runs in
    it. The same data are in RUN/status.json, which a run rewrites with its rows of metrics, at most once a second.
    """
    with bad_input():
        from minding.engine.run.run_dir import RunDir, run_folders
        from minding.engine.run.status import read_status

        folders = [RunDir.open(each) for each in run_folders(run)]
        # In a folder of seeds some runs may not have begun.
        begun = [folder for folder in folders if len(folders) == 1 or folder.status.exists()]
        found = [(folder, read_status(folder.status)) for folder in begun]
    for folder, each in found:
        _print_status(folder, each)
    for folder in folders:
        if folder not in begun:
            echo(f"{line(folder.path)}: has not started")


def _print_status(folder: RunDir, status: RunStatus) -> None:
    from minding.engine.chain.context import UNITS

    path = line(folder.path)
    again = f"minding resume {path} continues the run"
    if folder.resume is None:
        again = f"without a checkpoint; minding train {path}/{folder.config.name} starts it again"
    steps = f"{status.clock:,} of {status.limit:,} {UNITS[status.unit]}"
    learned = f", gradient step {status.train_iter:,}" if status.train_iter and status.unit != "train_iter" else ""
    echo(f"{path}: {_state(status, again)}")
    echo(f"  iteration {status.iteration:,}, {steps}{learned}")
    if status.workers:
        header = ("worker", "is", "on", "does", "weights", "backlog", "waited", "restarts")
        # What a worker that is gone was doing.
        last = "" if _runs(status) else ", at the last report"
        print_lines(f"  Workers{last}:", header, [_row(worker) for worker in status.workers], long=2)


def _runs(status: RunStatus) -> bool | None:
    """Whether the run is still running; None if its machine is not visible from here."""
    from minding.engine.process.alive import runs

    return status.state == "running" and runs(status.pid, status.node, status.born)


def _state(status: RunStatus, again: str) -> str:
    """A text about the current state of the run; `again` says what to do if its process is gone."""
    who, when = f"process {status.pid} on {line(status.node)}", _when(status.written)
    if status.state != "running":
        return f"{status.state} ({line(status.reason)}), {when}"
    alive = _runs(status)
    if alive is None:
        return f"running at its last report, {when}; {who} is not visible from this machine"
    if not alive:
        return f"gone: {who} no longer runs; last report {when}; {again}"
    return f"running, {who}; last report {when}"


def _row(worker: WorkerStatus) -> tuple[str, ...]:
    what = worker.kind if worker.pid is None else f"{worker.kind} {worker.pid}"
    age = "" if worker.weights_age is None else f"{worker.weights_age} old"
    figures = str(worker.backlog), f"{worker.waited:.1f} s", str(worker.restarts)
    return worker.name, what, worker.node or "no machine yet", worker.member, age, *figures


def _when(written: float) -> str:
    ago = max(0.0, time.time() - written)
    for seconds, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if ago >= 2 * seconds:
            since = f"{ago / seconds:.0f} {unit} ago"
            break
    else:
        since = f"{ago:.0f} s ago"
    return f"{datetime.fromtimestamp(written, timezone.utc):%Y-%m-%d %H:%M:%S} UTC ({since})"


@command(examples=("pool runs/hopper_sac", "pool runs/hopper_sac --pin 3"))
@click.argument("run", type=RunFolder())
@click.option("--pin", type=COUNT, multiple=True, metavar="N", help="Keep this version; may be given several times.")
@click.option(
    "--unpin", type=COUNT, multiple=True, metavar="N", help="Unpin this version: it may be deleted like the others."
)
def pool(run: str, pin: tuple[int, ...], unpin: tuple[int, ...]) -> None:
    """List and pin the versions of a policy that a run keeps.

    This also works while the run trains.
    A run with the setting pool.freq=N adds a version of its policy every N iterations, and with each evaluation.
    `minding eval`, `record`, `export` and `play` take one of them with --model.
    """
    with bad_input():
        from minding.engine.run.pool import ModelPool
        from minding.engine.run.run_dir import RunDir

        models = ModelPool(RunDir.open(run).models)
        for number in pin:
            models.pin(number)
        for number in unpin:
            models.unpin(number)
        # If there are no versions, this error says what to do.
        models.find("latest")
        versions = models.versions
    rows = [
        (
            str(version.number),
            f"{version.iteration:,}",
            f"{version.env_step:,}",
            "" if version.score is None else f"{version.score:.4g}",
            "yes" if version.pinned else "",
            f"{version.size / 1e6:.2f} MB" if version.path.is_file() else "missing",
        )
        for version in versions
    ]
    header = ("version", "iteration", "env step", "score", "pinned", "size")
    print_lines(f"{models.folder}: {len(versions)} versions", header, rows, long=0)
