"""The table of a benchmark run: in the terminal, as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import KINDS, find_case
from benchmarks.pages import versions_of
from benchmarks.pairs import Comparison, Plan, RunFailed, call, median_rate
from benchmarks.probes import Reading
from benchmarks.window import Measurement

PACKAGES = (
    "mindspore", "torch", "stable_baselines3", "sb3_contrib", "sbx_rl", "d3rlpy", "jax", "jaxmarl", "cpprb",
    "gymnasium", "mujoco", "mpe2", "numpy", "open_spiel", "xuance",
)  # fmt: skip
SPEED_COLUMNS = (
    "work",
    "case",
    "peer",
    "pairs",
    "minding /s",
    "peer /s",
    "ratio",
    "lowest - highest",
    "cores",
    "peak MB",
    "first, s",
    "target",
    "met",
)
READING_COLUMNS = ("measurement", "value", "limit", "met", "beside")
VERDICTS = {True: "yes", False: "NO", None: "failed"}
VERSIONS_SCRIPT = f"""
import importlib.metadata, json, platform
found = {{"python": platform.python_version()}}
for name in {PACKAGES!r}:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def cpu_model() -> str:
    """The processor's name as the operating system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def own_versions() -> dict[str, str]:
    """Versions in this interpreter, of the packages that are installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def peer_versions(python: str) -> dict[str, str]:
    """Versions in the peers' interpreter; empty when it cannot be asked."""
    try:
        answer: dict[str, str] = json.loads(call([python, "-c", VERSIONS_SCRIPT], {"PYTHONPATH": ""}, timeout=60))
    except RunFailed:
        return {}
    return answer


def describe_machine(peers_python: str | None, elsewhere: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a reader needs to judge the numbers; `load` is the average of the last minute.

    Args:
      peers_python: interpreter of the peers.
      elsewhere: by peer, the interpreters of those that have one of their own.
    """
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
        "minding": own_versions(),
        "peers": peer_versions(peers_python) if peers_python else {},
        **{peer: peer_versions(python) for peer, python in (elsewhere or {}).items()},
    }


def _both(result: Comparison, value: Callable[[Measurement], float], form: str) -> str:
    """Medians of both sides."""
    sides = (statistics.median(map(value, side)) for side in (result.ours, result.theirs))
    return " / ".join(format(median, form) for median in sides)


def speed_row(result: Comparison) -> tuple[str, ...]:
    """One line of the speed table, as text."""
    head = (find_case(result.case).kind, result.case, result.peer, str(len(result.ratios)))
    verdict = (f">= {result.target:g}x", VERDICTS[result.met])
    if not result.ratios:
        return (*head, *["-"] * 7, *verdict)
    return (
        *head,
        f"{median_rate(result.ours):,.0f}",
        f"{median_rate(result.theirs):,.0f}",
        f"{statistics.median(result.ratios):.2f}x",
        f"{min(result.ratios):.2f} - {max(result.ratios):.2f}",
        _both(result, lambda m: m.cores, ".1f"),
        _both(result, lambda m: m.peak_mb, ",.0f"),
        _both(result, lambda m: m.first_seconds, ".1f"),
        *verdict,
    )


def reading_row(reading: Reading) -> tuple[str, ...]:
    """One line of the second table, as text."""
    value = "-" if reading.value is None else f"{reading.value:.3g} {reading.unit}"
    return (reading.title, value, f"<= {reading.limit:g} {reading.unit}", VERDICTS[reading.met], reading.beside)


@dataclasses.dataclass
class Report:
    """Everything one benchmark run found.

    Attributes:
      machine: from `describe_machine`.
      plan: how it was run.
      results: the comparisons.
      readings: the measurements without a peer.
      date: UTC day and minute of the run.
    """

    machine: dict[str, Any]
    plan: Plan
    results: list[Comparison]
    readings: list[Reading]
    date: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    )

    @property
    def failures(self) -> list[str]:
        """What did not run, with the reason, one line each."""
        lines = [f"{r.case} against {r.peer}: {r.error}" for r in self.results if r.error]
        return lines + [f"{r.title}: {r.error}" for r in self.readings if r.error]

    @property
    def unmet(self) -> list[str]:
        """Names of what ran and missed its target."""
        named = [(f"{r.case} against {r.peer}", r.met) for r in self.results]
        named += [(r.title, r.met) for r in self.readings]
        return [name for name, met in named if met is False]

    def heading(self) -> str:
        """Machine, versions and method in a few sentences."""
        machine, plan = self.machine, self.plan
        return (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
            f"load {machine['load']} at the start. {versions_of(machine)}. "
            f"Environment steps per second of steady training, or gradient steps from recorded data; medians over "
            f"{plan.pairs} pairs run alternately, each run in a separate process; `ratio` is the median of the "
            f"pairwise ratios. Ours / peer: `cores` is the processor time used over wall time, `peak MB` the most "
            "memory that a process had resident, and `first, s` the time from the start of a process to the end of its "
            "first iteration that learns. Both sides compute with one thread, unless the case says otherwise."
        )

    def tables(self) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
        """Column names and rows of the tables that have rows."""
        by_kind = sorted(self.results, key=lambda result: KINDS.index(find_case(result.case).kind))
        speed = (SPEED_COLUMNS, [speed_row(result) for result in by_kind])
        other = (READING_COLUMNS, [reading_row(reading) for reading in self.readings])
        return [table for table in (speed, other) if table[1]]

    def to_markdown(self) -> str:
        """The report as a Markdown page."""
        parts = [f"# Benchmark, {self.date}", self.heading()]
        parts += [markdown_table(columns, rows) for columns, rows in self.tables()]
        if self.failures:
            parts.append("Did not run:\n\n" + "\n".join(f"- {line}" for line in self.failures))
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """The report with every single measurement."""
        record = {
            "date": self.date,
            "machine": self.machine,
            # Without the interpreters' paths, which say nothing about the numbers.
            "plan": {
                key: value
                for key, value in dataclasses.asdict(self.plan).items()
                if key not in ("peers_python", "pythons")
            },
            "results": [comparison_record(result) for result in self.results],
            "readings": [{**dataclasses.asdict(reading), "met": reading.met} for reading in self.readings],
        }
        return json.dumps(record, indent=2) + "\n"

    def write(self, folder: Path) -> None:
        """Writes `latest.md` and `latest.json` into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "latest.md").write_text(self.to_markdown())
        (folder / "latest.json").write_text(self.to_json())

    def show(self, console: Console) -> None:
        """Prints the tables and what failed."""
        for columns, rows in self.tables():
            table = Table(*columns)
            for row in rows:
                table.add_row(*row)
            console.print(table)
        for line in self.failures:
            console.print(f"did not run: {line}", style="red", markup=False)
        if self.unmet:
            console.print(f"target missed: {', '.join(self.unmet)}", style="yellow", markup=False)


def comparison_record(result: Comparison) -> dict[str, Any]:
    """A comparison as plain JSON values."""
    ratios = result.ratios
    return {
        **dataclasses.asdict(result),
        "ratios": ratios,
        "median_ratio": statistics.median(ratios) if ratios else None,
        "met": result.met,
    }


def markdown_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table of plain text cells."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
