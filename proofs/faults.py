"""Long evidence that runs survive faults and end in order on signals; docs/results/survival.md quotes it.

    python -m proofs.faults faults     # CartPole with 1 % of its steps raising: solved, and how fast?
    python -m proofs.faults signals    # SIGTERM and SIGINT at random times: saved, gone, resumed?

Each writes ``docs/results/<name>.json``. The exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minding.engine.checkpoint import newest_checkpoint, read_manifest
from minding.engine.errors import CheckpointError
from proofs import pages as proof_pages
from proofs.runs import ROOT, Results, RunFailed

Record = dict[str, Any]

SHARE, SOLVED, SPEED = 0.01, 475.0, 0.8
ENV_STEPS = 100_000
# Iterations before the clock starts: they compile.
WARM_UP = 5

SECONDS = 10.0
# MindSpore turns SIGINT into SIGTERM, once it has run a graph.
EXIT_CODES = {signal.SIGTERM: (143,), signal.SIGINT: (130, 143)}
# How long after the first metrics the signal may come, s.
LATEST = 5.0
PATIENCE = 120.0
# multiprocessing's resource tracker ends when it sees the pipe of its parent closed.
ORPHAN_SECONDS = 2.0


def train_flaky(share: float, seed: int, env_steps: int) -> Record:
    """Trains the preset cartpole_ppo in this process, in environments of which a share of the steps raises.

    The evaluation takes the environment unmodified: one of 500 steps would hardly ever get through the faults.
    """
    from minding import training
    from minding.configs import compile_run, load_preset
    from minding.engine.chain.context import OnlineRLContext
    from minding.engine.chain.task import Task

    preset = load_preset("cartpole_ppo")
    preset.seed = seed
    preset.env.update(env_id="proofs.flaky_cartpole:FlakyCartPole", backend="sync", on_error="restart")
    preset.env.env_kwargs = {"share": share}
    preset.policy.eval.freq = 10**9
    cfg = compile_run(preset, [f"run.max_env_step={env_steps}"])
    task, marks = Task(), []

    def watch(ctx: OnlineRLContext) -> None:
        if ctx.total_step >= WARM_UP:
            marks.append((time.perf_counter(), ctx.env_step))
        task.finish = ctx.env_step >= env_steps

    with task.start(ctx=OnlineRLContext()):
        policy = training.build(task, cfg)
        task.use(watch).run()
    cfg.env.env_kwargs.share = 0.0
    returns = [end.episode_return for end in training.final_evaluation(cfg, policy, 100)]
    (begin, first), (end, last) = marks[0], marks[-1]
    return {
        "seed": seed,
        "share": share,
        "env_step": last,
        "steps_per_second": round((last - first) / (end - begin)),
        "eval_mean": statistics.fmean(returns),
    }


def prove_faults(args: argparse.Namespace) -> Record:
    """Pairs of runs with and without faults, each in a separate process: A B A B."""
    pairs = []
    for seed in range(args.trials or 5):
        pair = {}
        for name, share in (("without", 0.0), ("with", SHARE)):
            command = ["-m", "proofs.faults", "train", str(share), str(seed), str(args.steps)]
            pair[name] = json.loads(_run(command).splitlines()[-1])
        pair["ratio"] = round(pair["with"]["steps_per_second"] / pair["without"]["steps_per_second"], 3)
        print(pair, flush=True)
        pairs.append(pair)
    ratio = statistics.median(pair["ratio"] for pair in pairs)
    worst = min(pair["with"]["eval_mean"] for pair in pairs)
    return {
        "share": SHARE,
        "env_step": args.steps,
        "median_ratio": ratio,
        "worst_eval_mean": worst,
        "met": ratio >= SPEED and worst >= SOLVED,
        "pairs": pairs,
    }


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run that gets a signal `delay` seconds after its first metrics, with environments in workers or not."""

    number: signal.Signals
    delay: float
    backend: str
    folder: Path

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def __call__(self) -> Record:
        """Runs it, sends the signal, and resumes what was saved for another 2,000 steps."""
        shutil.rmtree(self.folder, ignore_errors=True)
        process = self._start()
        try:
            _wait(lambda: (self.run_dir / "metrics.csv").is_file(), process)
            time.sleep(self.delay)
            children = _children(process.pid)
            process.send_signal(self.number)
            begin = time.monotonic()
            output, _ = process.communicate(timeout=PATIENCE)
            seconds = time.monotonic() - begin
        finally:
            process.kill()
        env_step = self._saved_env_step()
        return {
            "signal": self.number.name,
            "backend": self.backend,
            "delay": round(self.delay, 2),
            "seconds": round(seconds, 2),
            "exit_code": process.returncode,
            "saved_env_step": env_step,
            "orphans": _left(children),
            "resumed": env_step is not None and self._resumes(env_step + 2_000),
            "output": "" if process.returncode in EXIT_CODES[self.number] else output[-1000:],
        }

    def _start(self) -> subprocess.Popen[str]:
        settings = [f"run.out_dir={self.folder}", "exp_name=run", "run.max_env_step=100000000", "run.metrics_freq=256"]
        # The resumed run makes its final evaluation, too.
        settings.append("run.final_episodes=5")
        settings += [f"env.backend={self.backend}", "env.workers=2", "policy.eval.freq=2000"]
        command = [sys.executable, "-m", "minding", "train", "cartpole_ppo", *settings, "--no-progress"]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _saved_env_step(self) -> int | None:
        try:
            return int(read_manifest(newest_checkpoint(self.run_dir / "ckpt"))["env_step"])
        except CheckpointError:
            return None

    def _resumes(self, env_step: int) -> bool:
        try:
            _run(["-m", "minding", "resume", str(self.run_dir), f"run.max_env_step={env_step}"])
        except RunFailed as error:
            print(error, file=sys.stderr, flush=True)
            return False
        return True


def prove_signals(args: argparse.Namespace) -> Record:
    """Trials of both signals in turn, at random times, in this process and in workers."""
    rng, trials = random.Random(0), []
    for index in range(args.trials or 100):
        number = signal.SIGTERM if index % 2 == 0 else signal.SIGINT
        backend = "sync" if index % 4 < 2 else "subprocess"
        record = Trial(number, rng.uniform(0.0, LATEST), backend, args.runs / "signals")()
        print(record, flush=True)
        trials.append(record)
    figures = {number.name: _figures([t for t in trials if t["signal"] == number.name]) for number in EXIT_CODES}
    met = all(each["good"] == each["trials"] and not each["orphans"] for each in figures.values())
    return {**figures, "met": met, "list": trials}


def _figures(trials: Sequence[Record]) -> Record:
    return {
        "trials": len(trials),
        "good": sum(map(_is_good, trials)),
        "orphans": sum(trial["orphans"] for trial in trials),
        "slowest_seconds": max((trial["seconds"] for trial in trials), default=None),
    }


def _is_good(trial: Record) -> bool:
    return (
        trial["exit_code"] in EXIT_CODES[signal.Signals[trial["signal"]]]
        and trial["seconds"] <= SECONDS
        and trial["saved_env_step"] is not None
        and trial["resumed"]
    )


def _wait(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RunFailed(f"the run did not begin: {process.communicate()[0][-2000:]}")
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _left(pids: Sequence[int]) -> int:
    """How many processes are still there: those that wait for the end of their parent get a moment to see it."""
    deadline = time.monotonic() + ORPHAN_SECONDS
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return sum(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _run(arguments: Sequence[str]) -> str:
    out = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    if out.returncode:
        raise RunFailed(f"{' '.join(arguments)}: exit code {out.returncode}\n{(out.stdout + out.stderr)[-2000:]}")
    return out.stdout


PROOFS: dict[str, Callable[[argparse.Namespace], Record]] = {"faults": prove_faults, "signals": prove_signals}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proofs.faults", description=__doc__)
    parser.add_argument("proof", choices=PROOFS)
    parser.add_argument("--trials", type=int, help="pairs of runs (5), or signals (100)")
    parser.add_argument("--steps", type=int, default=ENV_STEPS, help="environment steps of each run with faults")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    args = parser.parse_args(argv)
    if (args.trials or args.steps != ENV_STEPS) and args.docs.resolve() == ROOT / "docs":
        parser.error("--trials and --steps prove less: also give --docs FOLDER, a copy of docs")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 when a target is missed."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["train"]:  # one run of `prove_faults`, in its own process
        share, seed, env_steps = argv[1:]
        print(json.dumps(train_flaky(float(share), int(seed), int(env_steps))))
        return 0
    args = parse_arguments(argv)
    record = PROOFS[args.proof](args)
    path = args.docs / "results" / f"{args.proof}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    proof_pages.update(Results(args.docs))
    print(f"{args.proof}: {'met' if record['met'] else 'MISSED'}, written to {path}")
    return 0 if record["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
