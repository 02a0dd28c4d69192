"""Exact resume under ``kill -9``: ``python -m proofs.kills``, at the root; continues where it stopped.

Each preset is trained once without a break. Then it is trained again in a process that is killed at random times and
restarted with ``--resume``, until it ends; the last checkpoint, the metrics and the final evaluation must be the
same, bit by bit. That is repeated until there were enough kills. Results are lines of JSON in
``docs/results/kills.jsonl``; what stands there for the same configuration is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fingerprint import fingerprint, tables_fingerprint
from minding.configs import PRESETS, compile_run, load_preset
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.engine.errors import MissingExtraError
from minding.engine.run.run_dir import RunDir
from minding.policies import get_algorithm
from proofs import pages as proof_pages
from proofs.runs import Job, Record, Results, RunFailed, head_of, last_run

ROOT = Path(__file__).resolve().parent.parent
KILLS = 6
CHECKPOINTS = 40
"""About how many a run takes."""


def _resumes_exactly(preset: str) -> bool:
    """Whether a preset plays and promises the same run after a kill: without its buffer a resumed run refills it."""
    cfg = load_preset(preset)
    keeps_buffer = cfg.policy.get("other", {}).get("save_buffer", True)
    return get_algorithm(cfg.policy.type).unit == "env_step" and keeps_buffer


KILLED = tuple(filter(_resumes_exactly, PRESETS))
"""Presets that need nothing but their environment; what learns from recorded data is in `tests/contract`."""
GRADIENT_STEPS = 1_100
"""At least as many as a run makes, past the 830 after which moments without gradients would become denormal."""


@dataclasses.dataclass(frozen=True)
class KillJob(Job):
    """A preset that is killed `kills` times.

    Attributes:
      gradient_steps: about how many the run makes, from which the distance of checkpoints follows.
      buffer_size: rows of a replay buffer, which is full before the end; 0 for an algorithm without one.
    """

    kills: int = KILLS
    gradient_steps: int = 0
    buffer_size: int = 0

    @property
    def overrides(self) -> tuple[str, ...]:
        steps = self.env_step
        small = {
            "run.ckpt_freq": max(1, self.gradient_steps // CHECKPOINTS),
            "run.metrics_freq": steps // 20,
            "run.final_episodes": 5,
            "policy.eval.freq": steps // 5,
            "policy.eval.n_episode": 3,
        }
        if self.buffer_size:
            small["policy.other.buffer_size"] = self.buffer_size
        return (*super().overrides, *(f"{key}={value}" for key, value in small.items()))


def make_job(preset: str, kills: int = KILLS, env_step: int | None = None) -> KillJob:
    """The job of a preset; `env_step` in place of what its gradient steps take, to try it out.

    Raises:
      MissingExtraError: the preset's environment needs a package that is not installed.
    """
    cfg = compile_run(load_preset(preset))
    learn, n_sample = cfg.policy.learn, cfg.policy.collect.n_sample
    updates = math.prod(learn.get(key, 1) for key in ("n_epoch", "n_minibatch", "update_per_collect"))
    warmup = learn.get("warmup", 0)
    # With few long iterations there would be no checkpoints to be killed between.
    iterations = max(-(-GRADIENT_STEPS // updates), CHECKPOINTS)
    steps = env_step or warmup + iterations * n_sample
    iterations = (steps - warmup) // n_sample
    rows = max(steps // 2, warmup) if "buffer_size" in cfg.policy.other else 0
    return KillJob("kills", preset, 0, steps, kills=kills, gradient_steps=iterations * updates, buffer_size=rows)


def run_kills(job: KillJob, runs: Path) -> Record:
    """Trains without a break and with kills, and compares.

    Raises:
      RunFailed: a process ended with an error.
    """
    folder = runs / "kills" / job.preset
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    train(job, folder / "whole")
    seconds = time.monotonic() - start
    expected = outcome(RunDir.open(folder / "whole" / job.preset))
    # Not `job.seed` alone: presets are to be killed at different moments.
    rng = random.Random(f"{job.preset} {job.seed}")
    kills, sequences, different = 0, 0, set()
    while kills < job.kills:
        sequences += 1
        killed = folder / f"killed_{sequences}"
        # Short enough for several kills on the way to the end.
        while not train(job, killed, rng.uniform(0.0, seconds / 2) if kills < job.kills else None):
            kills += 1
        found = outcome(last_run(killed))
        different |= {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
    return {
        **head_of(job),
        "env_step": job.env_step,
        "kills": kills,
        "runs": sequences,
        "compared": len(expected),
        "equal": not different,
        "different": sorted(different),
    }


def outcome(run_dir: RunDir) -> dict[str, str]:
    """Fingerprints of everything that must be the same at the end of a run."""
    state, manifest = load_checkpoint(newest_checkpoint(run_dir.checkpoints))
    # The folder of the run is part of its configuration.
    del state["config"]
    summary = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    ends = ("env_step", "train_iter", "eval_return", "eval_std", "stop_reason")
    return {
        **fingerprint(state),
        **tables_fingerprint(run_dir),
        "guarantee": manifest["guarantee"],
        **{f"summary/{key}": repr(summary[key]) for key in ends},
    }


def command_of(job: KillJob, folder: Path) -> list[str]:
    """The command that trains in a run folder in `folder`, or resumes what is there."""
    overrides = [*job.overrides, f"run.out_dir={folder}", f"exp_name={job.preset}"]
    return [sys.executable, "-m", "minding", "train", job.preset, *overrides, "--resume", "--no-progress"]


def train(job: KillJob, folder: Path, kill_after: float | None = None) -> bool:
    """Runs `command_of`; returns whether it came to its end before it was killed after some seconds.

    Raises:
      RunFailed: it ended with an error.
    """
    command = command_of(job, folder)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            out, _ = process.communicate(timeout=kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
            return False
    if process.returncode:
        raise RunFailed(f"{' '.join(command[1:])}: exit code {process.returncode}\n{out[-2000:]}")
    return True


def _is_done(results: Results, job: KillJob) -> bool:
    found = results.of("kills", job.preset)
    return any(each["config_hash"] == job.config_hash and each["kills"] >= job.kills for each in found)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proofs.kills", description=__doc__)
    parser.add_argument("--only", action="append", choices=KILLED, metavar="PRESET", help=", ".join(KILLED))
    parser.add_argument("--kills", type=int, default=KILLS, help=f"kills of each preset ({KILLS})")
    parser.add_argument("--again", action="store_true", help="run also what is done")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    args = parser.parse_args(argv)
    if args.kills < KILLS and args.docs.resolve() == ROOT / "docs":
        parser.error(f"fewer than {KILLS} kills prove too little: also give --docs FOLDER")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 if a run differs or did not end."""
    args = parse_arguments(argv)
    results = Results(args.docs)
    failed = False
    for preset in args.only or KILLED:
        try:
            job = make_job(preset, args.kills)
        except MissingExtraError as error:
            print(f"{preset}: left out: {error}", file=sys.stderr, flush=True)
            continue
        if not args.again and _is_done(results, job):
            continue
        try:
            record = run_kills(job, args.runs)
        except RunFailed as error:
            print(f"{job}: FAILED\n{error}", file=sys.stderr, flush=True)
            failed = True
            continue
        results.append("kills", record)
        proof_pages.update(results)
        verdict = "equal" if record["equal"] else f"DIFFERENT: {', '.join(record['different'][:5])}"
        print(f"{job}: {record['kills']} kills in {record['runs']} runs, {verdict}", flush=True)
        failed = failed or not record["equal"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
