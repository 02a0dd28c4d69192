"""Folders from anybody: forged or damaged checkpoints, configurations, metrics and data, read as the commands do.

    python -m proofs.forged

A short run is made, and what its policy does is recorded; then one file of a copy of it is forged, with checksums that
fit, or damaged, and the copy is read: checkpoints as by `minding eval` and by `minding resume`, configurations and
metrics as by all commands, recorded data as by an algorithm that learns from them. Each reading must end within its
time and memory with the older checkpoint, one clear line, or values that a run could have written.

Links that lead to files of the user, and named pipes, are put into the copy, and each writer of a run writes there:
nothing outside may change, and the time beyond what the same writer takes in a whole folder is limited as for a
reading. Packages called like optional ones are put into the copy, which is the current folder, and named in its
settings: none of their code may run. A run that the user made with a module of his own, and signed, is copied, and its
signature, owner, settings or module are forged: no module may be imported. Takes about five minutes; the figures go to
``docs/results/forged.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import os
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.checkpoint import set_aside
from minding.engine.config.compiler import save_config
from minding.engine.config.identity import check_newest
from minding.engine.data.dataset import check_fits, load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.errors import MindingError, NonFiniteError
from minding.engine.run.curves import EVAL_RETURN, learning_curves
from minding.engine.run.lock import RunLock
from minding.engine.run.loggers import TensorBoardWriter
from minding.engine.run.metrics import CsvWriter, read_metrics
from minding.engine.run.page import write_page
from minding.engine.run.plotting import plot_curves
from minding.engine.run.pool import ModelPool
from minding.engine.run.run_dir import RunDir
from minding.engine.run.status import StatusFile
from minding.engine.run.trackers import TrackedRun
from minding.middleware import CkptSaver, online_logger, termination_checker
from minding.training import loading
from minding.training.session import nan_batch_kept
from proofs import forge
from proofs import pages as proof_pages
from proofs.runs import Results, commit

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "forged.json"
CASES = {
    **{"checkpoints": 700, "configurations": 200, "metrics": 100, "datasets": 200},
    **{"links": 300, "pipes": 100, "packages": 200, "claims": 200},
}
MOST_SECONDS, MOST_MB, MOST_TEXT = 2.0, 200.0, 2100
SETTINGS = (
    *("exp_name=run", "run.max_env_step=240", "run.final_episodes=2", "run.ckpt_freq=4", "run.metrics_freq=20"),
    *("run.loggers=[]", "env.collector_env_num=2", "env.evaluator_env_num=2", "env.normalize_reward=true"),
    *("policy.model.hidden=[8]", "policy.model.normalize_obs=true", "policy.collect.n_sample=8"),
    *("policy.learn.warmup=16", "policy.learn.batch_size=8", "policy.other.buffer_size=500", "policy.eval.freq=100"),
)


_UNLOCKED = ("page", "picture", "pins", "data", "set aside")
"""Writers that do not lock the run."""


class Hang(BaseException):
    """A reading took too long to wait for."""


def make_run(folder: Path) -> RunDir:
    """A finished run of a few iterations, with checkpoints of which only two stay, and recorded data."""
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "dqn"})
    cfg = compile_run(user, [*SETTINGS, f"run.out_dir={folder}"])
    run = RunDir.create(cfg)
    training.train(cfg, run, progress=False)
    training.record_data(run, 60)
    ModelPool(run.models).add({"w": np.zeros(2, np.float32)}, 1, 1)
    return run


class Readers:
    """Reads a run folder as the commands do, and writes there; each returns in a word what came of it.

    Args:
      run: where the copies are put.
      newest: name of the checkpoint that is forged.

    Attributes:
      usual: seconds that each writer takes in a folder that nobody has forged, by its number.
    """

    def __init__(self, run: Path, newest: str) -> None:
        self.run, self.newest = run, newest
        self.usual: dict[int, float] = {}
        cfg = compile_run(RunDir.open(run).load_config())
        self.task = Task()
        self.task.start(False, OnlineRLContext())
        self.policy = training.build(self.task, cfg)
        self.saver = CkptSaver(self.policy, run.name, out_dir=run.parent, task=self.task)
        self.task.use(termination_checker(max_env_step=cfg.run.max_env_step, task=self.task)).use(self.saver)
        self.task.use(online_logger(cfg, RunDir.open(run), progress=False, task=self.task))

    def play(self) -> str:
        # MindSpore keeps some memory of every network, which is not what is measured here.
        with mock.patch.object(loading, "make_policy", return_value=self.policy):
            return self._which(training.load_policy(RunDir.open(self.run)).ckpt.name)

    def resume(self) -> str:
        return self._which(self.saver.checkpoints.restore("latest").path.name)

    def configure(self) -> str:
        cfg = compile_run(RunDir.open(self.run).load_config())
        training.check_runnable(cfg)
        check_newest(self.run / "ckpt", cfg)
        return "read"

    def tabulate(self) -> str:
        writer = CsvWriter(self.run / "metrics.csv")
        with contextlib.suppress(MindingError):
            writer.load_state_dict({"rows": 3, "columns": ["env_step", EVAL_RETURN]})
            writer.write({"env_step": 240.0})
        read_metrics(self.run / "metrics.csv")
        return "read"

    def learn(self) -> str:
        data = load_dataset(self.run / "data")
        check_fits(data, compile_run(RunDir.open(self.run).load_config()).env, str(self.run / "data"))
        rows = data.rows(data.names, np.arange(len(data)))
        if any(len(values) != len(data) for values in rows.values()) or not np.isfinite(data.returns()).all():
            raise ValueError("data that do not fit together were read")
        return "read"

    def write(self, number: int) -> str:
        """Lets one writer of a run write, after the run was locked, or as commands do that lock no run."""
        writers = self.writers()
        name = [*writers][number % len(writers)]
        try:
            with RunLock(self.run) if name not in _UNLOCKED and number % 3 else contextlib.nullcontext():
                writers[name]()
        except OSError:
            # A run goes on and says so; commands end with one line.
            return "refused"
        return "read"

    def writers(self) -> dict[str, Callable[[], object]]:
        """What runs and commands write, by name."""
        run, checkpoints = RunDir(self.run), self.saver.checkpoints
        table = CsvWriter(run.metrics)
        return {
            "metrics": lambda: table.write({"env_step": 241.0, "new": 1.0}),
            "metrics of a resume": lambda: table.load_state_dict({"rows": 1, "columns": ["env_step"]}),
            "status": lambda: StatusFile(run.status).write(self.task.ctx, 1, []),
            "summary": lambda: run.write_summary({"env_step": 1}),
            "config": lambda: save_config(self.policy.config, run.config),
            "checkpoint": lambda: checkpoints.save(1.0, 1),
            "best checkpoint": lambda: checkpoints.save_best(1.0, None),
            "versions": lambda: ModelPool(run.models, last=1).add({"w": np.zeros(2, np.float32)}, 1, 1),
            "TensorBoard": lambda: _tensorboard(run.tensorboard),
            "tracker": lambda: TrackedRun("run", None, run.trackers, {}).make_folder(),
            "batch of NaN": lambda: _not_finite(self.run / "nan", self.task),
            "page": lambda: write_page([self.run], self.run / "report.html", lambda cfg: None),
            "picture": lambda: plot_curves(learning_curves([self.run]), run.curve),
            "pins": lambda: ModelPool(run.models).pin("latest"),
            "data": lambda: save_dataset(self.run / "more", load_dataset(self.run / "data")),
            "set aside": lambda: set_aside(run.checkpoints / self.newest),
        }

    def load_here(self) -> str:
        """Reads the run as `minding.load` does, in an interactive session in the run folder."""
        path, modules, here = [*sys.path], {*sys.modules}, Path.cwd()
        sys.path.insert(0, "")
        os.chdir(self.run)
        try:
            cfg = compile_run(RunDir.open(".").load_config())
            training.check_runnable(cfg)
            return "read"
        finally:
            os.chdir(here)
            if sys.path[1:] != path:
                raise AssertionError(f"the path has become {sys.path}")
            sys.path[:] = path
            for name in {*sys.modules} - modules:
                if name.partition(".")[0] in forge.PACKAGES:
                    del sys.modules[name]

    def believe(self) -> str:
        """Reads the run as `minding resume` does, in the current folder."""
        path, modules = [*sys.path], {*sys.modules}
        try:
            compile_run(RunDir.open(self.run).load_config(learns=True))
            return "read"
        finally:
            more, here = {*sys.modules} - modules, [*sys.path]
            for name in more:
                del sys.modules[name]
            sys.path[:] = path
            if more or here != path:
                raise AssertionError("a module was imported, or the path has changed")

    def _which(self, name: str) -> str:
        return "read" if name == self.newest else "older"


def outcome(read: Callable[[], str], usual: float = 0.0) -> tuple[str, float]:
    """What came of a reading, and the seconds it took; a broken promise begins with 'BROKEN'.

    Args:
      read: reads, or writes.
      usual: seconds that the same takes in a folder that nobody has forged; they do not count.
    """

    def too_long(*_: object) -> None:
        raise Hang

    earlier = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(20)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read()
    except MindingError as error:
        text = str(error)
        found = "refused" if len(text) <= MOST_TEXT else f"BROKEN: a message of {len(text)} characters"
    except Hang:
        found = "BROKEN: does not end"
    except Exception as error:
        found = f"BROKEN: {type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
    seconds = max(0.0, time.perf_counter() - start - usual)
    if seconds > MOST_SECONDS and not found.startswith("BROKEN"):
        found = f"BROKEN: {found} after {seconds:.1f} s"
    return found, seconds


def cases(kind: str, count: int, original: Path, readers: Readers, seed: int) -> Iterator[tuple[str, str, float]]:
    """Forges and reads; yields (what was done, what came of it, seconds)."""
    if kind == "claims":
        yield from claims(count, readers, seed)
        return
    for number in range(count):
        rng = random.Random(f"{seed} {kind} {number}")
        with forge.copied(original, readers.run) as run:
            if kind == "checkpoints":
                change = forge.CHECKPOINT_FORGES[number % len(forge.CHECKPOINT_FORGES)]
                change(run / "ckpt" / readers.newest, rng)
                read = readers.resume if number % 3 else readers.play
            elif kind == "configurations":
                change = forge.forge_config
                change(run / "config.yaml", rng)
                read = readers.configure
            elif kind in ("links", "pipes"):
                outside = readers.run.parent / "outside"
                shutil.rmtree(outside, ignore_errors=True)
                forge.make_outside(outside)
                forge.plant(run, rng, _link_to(outside) if kind == "links" else lambda path, _: os.mkfifo(path))
                before, change = forge.contents_of(outside), forge.plant
                read = functools.partial(readers.write, number)
            elif kind == "packages":
                mark, change = readers.run.parent / "ran", forge.name_packages
                forge.plant_packages(run, rng, mark)
                change(run / "config.yaml", rng)
                read = readers.load_here
            elif kind == "datasets":
                change = forge.CHECKPOINT_FORGES[number % len(forge.CHECKPOINT_FORGES)]
                change(run / "data", rng)
                read = readers.learn
            else:
                change = forge.forge_text
                change(run / "metrics.csv", rng)
                read = readers.tabulate
            usual = readers.usual.get(number % len(readers.writers()), 0.0) if kind in ("links", "pipes") else 0.0
            found, seconds = outcome(read, usual)
            if kind in ("links", "pipes") and forge.contents_of(outside) != before:
                found = "BROKEN: what a link leads to has changed"
            if kind == "packages" and mark.exists():
                mark.unlink()
                found = "BROKEN: code of the folder has run"
        yield f"{kind} {number}, {change.__name__}, {getattr(read, '__name__', 'write')}", found, seconds


def claims(count: int, readers: Readers, seed: int) -> Iterator[tuple[str, str, float]]:
    """As `cases`, with copies of a run that this user signed."""
    here, place, mark = Path.cwd(), readers.run.parent / "claims", readers.run.parent / "ran"
    state = mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(readers.run.parent / "state")})
    for number in range(count):
        with state:
            try:
                signed = forge.make_project(place)
                RunDir.open(signed).load_config(learns=True)  # It is the user's own, as long as nothing is forged.
                shutil.copytree(signed, readers.run)
                forge.forge_claim(readers.run, random.Random(f"{seed} claims {number}"), mark)
                found, seconds = outcome(readers.believe)
            finally:
                os.chdir(here)
                for folder in (place, readers.run):
                    shutil.rmtree(folder, ignore_errors=True)
        if found != "refused" or mark.exists():
            mark.unlink(missing_ok=True)
            found = f"BROKEN: {found}, though it is forged"
        yield f"claims {number}, forge_claim, believe", found, seconds


def _link_to(outside: Path) -> Callable[[Path, bool], None]:
    return lambda path, is_folder: path.symlink_to(outside if is_folder else outside / "metrics.csv")


def _tensorboard(folder: Path) -> None:
    writer = TensorBoardWriter(folder)
    writer.write({"a/b": 1.0}, 1)
    writer.close()


def _not_finite(folder: Path, task: Task[Any]) -> None:
    with contextlib.suppress(NonFiniteError), nan_batch_kept(folder, task):
        raise NonFiniteError("nan", {"obs": np.zeros(2, np.float32)}, {})


def measure(counts: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """All proofs; the figures as JSON values."""
    figures: dict[str, Any] = {"limits": {"seconds": MOST_SECONDS, "mb": MOST_MB}, "broken_promises": []}
    with tempfile.TemporaryDirectory() as parent:
        run = make_run(Path(parent) / "original")
        newest = max((run.checkpoints).glob("iter_*"), key=lambda path: int(path.name[5:])).name
        with forge.copied(run.path, Path(parent) / "forged" / "run") as place:
            readers = Readers(place, newest)
            for read in (readers.play, readers.resume, readers.configure, readers.tabulate, readers.learn):
                read()
        for number in [*range(len(readers.writers()))] * 2:
            with forge.copied(run.path, readers.run):
                # Drawing takes a second by itself, and the first time more.
                readers.usual[number] = outcome(functools.partial(readers.write, number))[1]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for kind, count in counts.items():
            found, seconds = Counter(), [0.0]
            for case, what, took in cases(kind, count, run.path, readers, seed):
                found[what.partition(":")[0]] += 1
                seconds.append(took)
                if what.startswith("BROKEN"):
                    figures["broken_promises"].append(f"{case}: {what}")
            figures[kind] = {"cases": count, **found, "slowest_s": round(max(seconds), 2)}
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    figures["more_mb"] = round(more)
    if more > MOST_MB:
        figures["broken_promises"].append(f"{more:.0f} MB more")
    names = ("minding", "numpy", "safetensors", "PyYAML")
    versions = {name: _version(name) for name in names}
    figures["versions"] = {"python": platform.python_version(), **versions, **commit()}
    return figures


def _version(name: str) -> str:
    from minding import __version__

    return __version__ if name == "minding" else version(name)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures and writes them down; 1 if anything that is promised does not hold."""
    parser = argparse.ArgumentParser(prog="python -m proofs.forged", description=__doc__)
    for kind, count in CASES.items():
        parser.add_argument(f"--{kind}", type=int, default=count, help=f"cases ({count})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    args = parser.parse_args(argv)
    # Damage is reported loudly, here a thousand times.
    logging.disable(logging.CRITICAL)
    figures = measure({kind: getattr(args, kind) for kind in CASES}, args.seed)
    text = json.dumps(figures, indent=2)
    args.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    proof_pages.update(Results(ROOT / "docs"))
    return 1 if figures["broken_promises"] else 0


if __name__ == "__main__":
    sys.exit(main())
