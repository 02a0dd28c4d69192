"""How speed and memory grow with the size of the work: ``python -m benchmarks.scaling [--quick] [--only NAME]``.

Each measurement is a separate process, ended after `--timeout` seconds; ours and the peer's alternate. The results go
to ``benchmarks/results/scaling.json`` and into the table of ``benchmarks/README.md``; with `--quick` or `--only` they
go to ``benchmarks/results/local/scaling.json`` and the table is only printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import async_overlap, pages
from benchmarks.cases import find_case
from benchmarks.pairs import ROOT, RunFailed, Side, call, find_peers_python, run_side
from benchmarks.probes import SOURCE, parse_json
from benchmarks.report import cpu_model, own_versions, peer_versions

QUICK_SCALE = 0.1
COLLECTOR_ITERATIONS = 12
"""On the clock, for each collector."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How to measure.

    Attributes:
      repeats: processes of each side for each size.
      scale: length of the timed windows.
      python: interpreter of the peers.
      timeout: seconds until a process is ended.
    """

    repeats: int
    scale: float
    python: str
    timeout: float


@dataclasses.dataclass(frozen=True)
class Reading:
    """What one process found: its figure, in the unit of the series, and its peak of memory."""

    value: float
    peak_mb: float


@dataclasses.dataclass(frozen=True)
class Series:
    """One kind of work in several sizes.

    Attributes:
      title: for the table.
      unit: of the figures.
      sizes: from small to large.
      take: the figure of one side, `minding` or `peer`, at one size.
      peer: who is beside, or None.
    """

    title: str
    unit: str
    sizes: tuple[int, ...]
    take: Callable[[str, int, Plan], Reading]
    peer: str | None


def training(names: dict[int, str]) -> Callable[[str, int, Plan], Reading]:
    """Times the case that has the given size; its steps are gradient steps where there is one for each."""

    def take(side: str, size: int, plan: Plan) -> Reading:
        case = find_case(names[size])
        runner = Side.ours() if side == "minding" else Side.peer(side, plan.python, case.threads)
        found = run_side(runner, case, 1, plan.scale, plan.timeout)
        return Reading(found.steps_per_second, found.peak_mb)

    return take


def replay(kind: Sequence[str], peer_module: str) -> Callable[[str, int, Plan], Reading]:
    """Times the draw of 256 rows; the window is always the same few hundred draws."""

    def take(side: str, size: int, plan: Plan) -> Reading:
        if side == "minding":
            command, environment = [sys.executable, "-m", "benchmarks.replay", str(size), *kind], SOURCE
        else:
            command = [plan.python, "-m", peer_module, str(size)]
            environment = {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
        record = parse_json(call(command, environment, plan.timeout))
        return Reading(record["ms"], record["peak_mb"])

    return take


def collectors(side: str, size: int, plan: Plan) -> Reading:
    """Env steps/s of minding, the only side, with that many collectors on an environment that waits."""
    assert side == "minding"
    iterations = max(1, round(COLLECTOR_ITERATIONS * plan.scale)) * size
    work = async_overlap.Work("waiting", 1, True, size, max_staleness=size, iterations=iterations)
    found = async_overlap.run(work, plan.timeout)
    return Reading(found["env_steps_per_second"], found["peak_mb"])


SERIES: dict[str, Series] = {
    "ppo": Series(
        "PPO on CartPole, environments", "env steps/s", (8, 64, 256, 1024),
        training({size: f"ppo_cartpole_{size}" for size in (8, 64, 256, 1024)}), "sb3",
    ),
    "sac": Series(
        "SAC on Pendulum, width of two layers", "gradient steps/s", (64, 256, 1024),
        training({64: "sac_pendulum_64", 256: "sac_pendulum", 1024: "sac_pendulum_1024"}), "sb3",
    ),
    "replay_uniform": Series(
        "uniform replay, rows", "ms", (10**4, 10**6, 10**7), replay(["uniform"], "benchmarks.peers.sb3_replay"), "sb3",
    ),
    "replay_prioritized": Series(
        "prioritized replay, rows", "ms", (10**4, 10**6, 10**7), replay([], "benchmarks.peers.cpprb_replay"), "cpprb",
    ),
    "collectors": Series("collectors, 5 ms a step", "env steps/s", async_overlap.COLLECTORS, collectors, None),
}  # fmt: skip


def measure(series: Series, size: int, plan: Plan, tell: Callable[[str], None]) -> pages.Record:
    """All repeats of one size; the first failure ends it and is kept.

    Args:
      series: the work.
      size: one of its sizes.
      plan: how often and how long.
      tell: told one line at the end.
    """
    row: pages.Record = {"title": series.title, "unit": series.unit, "size": size, "peer": series.peer}
    row |= {"ours": [], "theirs": [], "error": None}
    sides = [("ours", "minding")] + ([("theirs", series.peer)] if series.peer else [])
    try:
        for _ in range(plan.repeats):
            for key, side in sides:
                row[key].append(dataclasses.asdict(series.take(side, size, plan)))
    except RunFailed as error:
        row["error"] = str(error)
    tell(f"{series.title}, {size:,}: {row['error'] or ' | '.join(pages.scaling_cells(row))}")
    return row


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(SERIES), metavar="NAME", help=", ".join(SERIES))
    parser.add_argument("--repeats", type=int, default=3, help="processes of each side for each size (3)")
    parser.add_argument("--quick", action="store_true", help="one short repeat: does everything run?")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds until a process is ended (180)")
    parser.add_argument("--output", type=Path, help="folder of scaling.json; the table is then only printed")
    args = parser.parse_args(argv)
    if args.repeats < 1:
        parser.error("--repeats must be at least 1")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 when something did not run."""
    args = parse_arguments(argv)

    def tell(line: str) -> None:
        print(line, flush=True)

    chosen = [SERIES[name] for name in SERIES if not args.only or name in args.only]
    try:
        python = find_peers_python(tell) if any(series.peer for series in chosen) else ""
    except RunFailed as error:
        print(error)
        return 1
    plan = Plan(1 if args.quick else args.repeats, QUICK_SCALE if args.quick else 1.0, python, args.timeout)
    record = {
        "rows": [measure(series, size, plan, tell) for series in chosen for size in series.sizes],
        "cpu": cpu_model(),
        "minding": own_versions(),
        "peers": peer_versions(python) if python else {},
    }
    print(f"\n{pages.scaling_table(record)}")
    write(record, args.output, partial=bool(args.only or args.quick))
    return 1 if any(row["error"] for row in record["rows"]) else 0


def write(record: pages.Record, output: Path | None, *, partial: bool) -> None:
    """Writes the record; only a full run goes into the published results and their page."""
    if output is None and not partial:
        pages.write("scaling", record, ROOT / "benchmarks")
        return
    folder = output or ROOT / "benchmarks" / "results" / "local"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scaling.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
