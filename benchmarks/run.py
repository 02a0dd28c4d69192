"""Times minding against its peers and writes the table: ``python -m benchmarks.run``, at the root."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import pairs, probes
from benchmarks.cases import CASES
from benchmarks.pairs import Plan, RunFailed
from benchmarks.report import Report, describe_machine

RESULTS = Path(__file__).resolve().parent / "results"
QUICK_SCALE = 0.1


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    known = [*CASES, *probes.PROBES]
    parser.add_argument("--only", action="append", choices=known, metavar="NAME", help=", ".join(known))
    parser.add_argument("--pairs", type=int, default=5, help="pairs a comparison (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="length of the timed windows (1 is some seconds)")
    parser.add_argument("--quick", action="store_true", help="one pair with short windows: does everything run?")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds until a process is ended (600)")
    parser.add_argument("--output", type=Path, help="folder of latest.md and latest.json")
    args = parser.parse_args(argv)
    if args.quick:
        args.pairs, args.scale = 1, QUICK_SCALE
    if args.pairs < 1 or args.scale <= 0:
        parser.error("--pairs must be at least 1, --scale above 0")
    return args


def output_folder(args: argparse.Namespace) -> Path:
    """Where the report goes; a partial or short run never replaces the published table."""
    partial = args.only or args.quick
    return args.output or (RESULTS / "local" if partial else RESULTS)


def run(args: argparse.Namespace, console: Console) -> Report:
    """Runs what was asked for.

    Raises:
      RunFailed: a comparison is requested and there is no interpreter for the peers.
    """

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    chosen = [case for case in CASES.values() if not args.only or case.name in args.only]
    peers = {peer for _, peer in pairs.comparisons(chosen)}
    python = pairs.find_peers_python(tell) if peers - set(pairs.HOMES) else ""
    elsewhere = {peer: pairs.find_peers_python(tell, home) for peer, home in pairs.HOMES.items() if peer in peers}
    plan = Plan(args.pairs, args.scale, python, args.timeout, elsewhere)
    machine = describe_machine(python or None, elsewhere)
    results = [pairs.compare(case, peer, plan, tell) for case, peer in pairs.comparisons(chosen)]
    readings = [probes.read(name, args.timeout) for name in probes.PROBES if not args.only or name in args.only]
    return Report(machine, plan, results, readings)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 when something did not run; a missed target is shown but is not an error."""
    args = parse_arguments(argv)
    console = Console()
    try:
        report = run(args, console)
    except RunFailed as error:
        console.print(str(error), style="red", markup=False)
        return 1
    report.show(console)
    folder = output_folder(args)
    report.write(folder)
    console.print(f"written: {folder / 'latest.md'}, {folder / 'latest.json'}", markup=False)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
