"""Several learners against one, and a learner that is killed.

``python -m proofs.learners``, at the root, makes the same 200 gradient steps with one learner and with several, on the
same random rows, and measures how far the parameters drift apart. The drift of one learner whose parameters began one
unit of the last place higher shows how much of it is rounding. Then it trains `cartpole_ppo` with two learners, kills
one, resumes, and compares with a run that nothing happened to. The results are ``docs/results/learners.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.configs import compile_run
from minding.engine.buffers import DeviceTables
from minding.engine.data.batch import IndexedBatch, RowLayout
from minding.engine.process import collectives
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array
from minding.policies import get_policy_class
from proofs import pages
from proofs.kills import KillJob, command_of, outcome, train
from proofs.runs import ROOT, Record, Results, RunFailed, commit, last_run

NAME = "learners"
CASES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cartpole_ppo", "cartpole_a2c", "cartpole_impala", "cartpole_dqn", "pendulum_sac"), ()),
    # Without the kink of ReLU, see docs/learners.md.
    "pendulum_sac policy.model.activation=tanh": ("policy.model.activation=tanh",),
}
"""Settings of each compared preset, which is the first word of its name."""
SIZES = (2, 4)
CALLS, STEPS = 20, 10
"""Calls, and gradient steps of each."""
MARKS = (10, 50, 100, 200)
"""Gradient steps after which parameters are compared."""
_ROWS, _BLOCK = 512, {"cartpole_impala": (8, 8)}
"""Rows of the table; steps and environments of a minibatch of trajectories, the others have 64 rows."""
_WAIT = 600


def rows(layout: RowLayout, rng: np.random.Generator) -> dict[str, Array]:
    """Random values of all fields; two discrete actions, and one row of ten that does not count or ends an episode."""
    found = {}
    for name, field in layout.fields.items():
        shape = (_ROWS, *field.shape)
        if field.dtype == "int32":
            found[name] = rng.integers(0, 2, shape)
        elif name in ("terminated", "cut"):
            found[name] = (rng.random(shape) < 0.1).astype(np.float32)
        elif name == "valid":
            found[name] = (rng.random(shape) < 0.9).astype(np.float32)
        elif name == "discount":
            found[name] = np.full(shape, 0.99, np.float32)
        elif name == "log_prob":
            found[name] = rng.normal(-0.7, 0.1, shape).astype(np.float32)
        else:
            found[name] = rng.standard_normal(shape).astype(np.float32)
    return found


def learned(case: str, learners: int, nudged: bool = False) -> tuple[dict[int, dict[str, Array]], Any]:
    """The weights by number of gradient steps, and the policy.

    Args:
      case: one of `CASES`.
      learners: number of learners.
      nudged: whether all parameters begin one unit of the last place further from 0.
    """
    cfg = compile_run(case.split()[0], [f"lanes.learners={learners}", *CASES[case]])
    policy = get_policy_class(cfg.policy.type)(cfg, ("learn",))
    if nudged:
        state = policy.state_dict()
        away = {name: np.nextafter(w, np.copysign(np.float32(np.inf), w)) for name, w in _weights(policy).items()}
        policy.load_state_dict({**state, "params": {**state["params"], **away}})
    rng = np.random.default_rng(0)
    layout = RowLayout(policy.learn_mode.fields)
    tables = DeviceTables(layout, _ROWS)
    tables.write(0, layout.pack(rows(layout, rng)))
    found = {}
    for call in range(1, CALLS + 1):
        index = rng.integers(0, _ROWS, (STEPS, *_BLOCK.get(case, (64,))))
        policy.learn_mode.forward(IndexedBatch(layout, tables, index.astype(np.int32)))
        if call * STEPS in MARKS:
            found[call * STEPS] = _weights(policy)
    return found, policy


def _weights(policy: Any) -> dict[str, Array]:
    """Copies of the parameters that gradient steps move: moments of observations follow the steps."""
    return {
        name: p.asnumpy().copy()
        for name, p in policy.params.items()
        if ".normalizer." not in name and not name.startswith("optim.")
    }


def drift(mine: Mapping[str, Array], one: Mapping[str, Array]) -> float:
    """Largest difference of two parameters of the same name."""
    return max(float(np.abs(mine[name] - one[name]).max()) for name in one)


def compare(size: int, cases: Sequence[str]) -> list[Record]:
    """A record per case, of this number of learners; MindSpore forms one group in a process."""
    found = []
    for case in cases:
        one, _ = learned(case, 1)
        nudged, _ = learned(case, 1, nudged=True)
        several, policy = learned(case, size)
        last = {name: p.asnumpy() for name, p in policy.params.items() if ".normalizer." not in name}
        ranks = policy._update.group.parameters()
        found.append(
            {
                "preset": case,
                "learners": size,
                "ranks_equal": all(other[name].tobytes() == last[name].tobytes() for other in ranks for name in last),
                "drift": {str(mark): drift(several[mark], one[mark]) for mark in MARKS},
                "drift_of_nudged": {str(mark): drift(nudged[mark], one[mark]) for mark in MARKS},
            }
        )
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def killed(runs: Path) -> Record:
    """Kills a learner of `cartpole_ppo` once, and resumes.

    Raises:
      RunFailed: a run did not end as it should.
    """
    few = ("lanes.learners=2", "policy.learn.n_epoch=1", "policy.learn.n_minibatch=4", "policy.collect.n_sample=512")
    job = KillJob(NAME, "cartpole_ppo", 0, 16_384, few, kills=1, gradient_steps=128)
    folder = runs / NAME / str(time.time_ns())
    train(job, folder / "whole")
    expected = outcome(RunDir.open(folder / "whole" / job.preset))
    broken = folder / "killed"
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command_of(job, broken), cwd=ROOT, **pipes) as run:
        try:
            deadline = time.monotonic() + _WAIT
            while not list((broken / job.preset / "ckpt").glob("iter_*/manifest.json")):
                if run.poll() is not None or time.monotonic() > deadline:
                    raise RunFailed("the run ended before it saved a checkpoint")
                time.sleep(0.1)
            os.kill(other_learner(run.pid), signal.SIGKILL)
            begun = time.monotonic()
            _, said = run.communicate(timeout=_WAIT)
        finally:
            run.kill()
    seconds = time.monotonic() - begun
    if run.returncode != 1:
        raise RunFailed(f"exit code {run.returncode} after the end of a learner\n{said[-2000:]}")
    train(job, broken)
    found = outcome(last_run(broken))
    different = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return {
        "preset": job.preset, "seconds": round(seconds, 1), "messages": said.count("has ended"),
        "entries": len(expected), "different": different,
    }  # fmt: skip


def other_learner(pid: int) -> int:
    """The process of the other learner: the child that has computed most."""

    def ticks(child: str) -> int:
        fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    children = (path.read_text(encoding="utf-8").split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return int(max((child for each in children for child in each), key=ticks))


def main(argv: list[str] | None = None) -> int:
    """Returns 0, or 1 if learners disagree or the resumed run is a different one."""
    parser = argparse.ArgumentParser(prog="python -m proofs.learners", description=__doc__)
    parts = {**{str(size): size for size in SIZES}, "kill": 0}
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)} (all): what is measured again")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help="cases to compare (all)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    parser.add_argument("--compare", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    cases = args.only or list(CASES)
    if args.compare:
        print(json.dumps(compare(args.compare, cases)))
        return 0
    results = Results(args.docs)
    record = results.single(NAME) or {}
    for part in args.parts or parts:
        if part == "kill":
            record[part] = {**killed(args.runs), "versions": commit()}
            continue
        command = [sys.executable, "-m", "proofs.learners", "--compare", part]
        command += [word for case in cases for word in ("--only", case)]
        env = {**os.environ, collectives.NODE_TIMEOUT: str(_WAIT)}
        out = subprocess.check_output(command, cwd=ROOT, env=env, text=True)
        kept = [row for row in record.get(part, {}).get("compared", ()) if row["preset"] not in cases]
        record[part] = {"compared": [*kept, *json.loads(out.splitlines()[-1])], "versions": commit()}
    path = args.docs / "results" / f"{NAME}.json"
    path.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n", encoding="utf-8")
    pages.update(results)
    equal = all(row["ranks_equal"] for size in SIZES for row in record.get(str(size), {}).get("compared", ()))
    return 0 if equal and not record.get("kill", {}).get("different") else 1


if __name__ == "__main__":
    sys.exit(main())
