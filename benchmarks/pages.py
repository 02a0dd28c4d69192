"""From result files to the pages in ``docs``.

A table stands between ``<!-- results:NAME -->`` and ``<!-- /results -->``; the rest of a page is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
_BLOCK = re.compile(r"(<!-- results:([\w:]+) -->\n).*?(<!-- /results -->)", re.DOTALL)
NOT_YET = "Not measured yet: `make bench`.\n"


def update(docs: Path, table: Callable[[str, Path], str | None]) -> None:
    """Fills all pages of a folder.

    Args:
      docs: the folder.
      table: takes a name and the page; see `filled`.
    """
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        fresh = filled(text, lambda name, page=page: table(name, page))  # type: ignore[misc]
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")


def filled(text: str, table: Callable[[str], str | None]) -> str:
    """A page's text with tables between its markers; what is there stays where `table` returns None for the name."""

    def fill(block: re.Match[str]) -> str:
        found = table(block[2])
        return block[0] if found is None else block[1] + found + block[3]

    return _BLOCK.sub(fill, text)


def lanes_table(name: str, docs: Path) -> str | None:
    """A table of `TABLES`, by the name of its file in the folder's ``results``; None for another name."""
    if name not in TABLES:
        return None
    record = read(name, docs)
    if record is None:
        return NOT_YET
    return f"{TABLES[name](record)}\n\nMeasured on {record['cpu']}, medians.\n"


def read(name: str, docs: Path) -> Record | None:
    """A result, ``docs/results/<name>.json``; None if it was not measured yet."""
    path = docs / "results" / f"{name}.json"
    record: Record | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return record


def write(name: str, record: Record, docs: Path) -> None:
    """Writes a result and the tables of all pages."""
    path = docs / "results" / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    update(docs, lambda marker, page: lanes_table(marker, docs))


SCALING_TARGET = 0.9


def overlap_table(result: Record) -> str:
    """Speed-up of lanes over a synchronous run, and of several collectors over one, as Markdown."""
    lines = [
        "| environment | `max_staleness` | pairs | share of collection | speed-up | lowest - highest | of the ideal "
        "| target | met |",
        "|---|---:|---:|---|---:|---|---:|---:|---|",
    ]
    for row in result["overlap"]:
        # The longer of the two parts bounds what overlap can give.
        collected = [pair["collect_share"] for pair in row["pairs"]]
        ideals = [1.0 / max(part, 1.0 - part) for part in collected]
        share = float(np.median([pair["ratio"] / ideal for pair, ideal in zip(row["pairs"], ideals)]))
        met = "yes" if row["median"] >= row["target"] else "NO"
        cells = (
            row["case"],
            row["max_staleness"],
            len(row["pairs"]),
            f"{min(collected):.0%} - {max(collected):.0%}",
            f"{row['median']:.2f}x",
            f"{row['lowest']:.2f} - {row['highest']:.2f}",
            f"{share:.0%}",
            f"{row['target']}x",
            met,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "| collectors | env steps/s | over one | share of ideal | met |", "|---:|---:|---:|---:|---|"]
    for row in result["scaling"]:
        met = "yes" if row["share"] >= SCALING_TARGET else "NO"
        speed = np.median(row["env_steps_per_second"])
        lines.append(f"| {row['collectors']} | {speed:.0f} | {row['ratio']:.2f}x | {row['share']:.2f} | {met} |")
    first = result["start_up"]
    if first:
        spread = f"{min(first):.2f} - {max(first):.2f} s, n = {len(first)}"
        lines += ["", f"First rollout of `cartpole_ppo` {np.median(first):.2f} s after the start ({spread})."]
    return "\n".join(lines)


def presets_table(cases: list[Record]) -> str:
    """Speed-up of lanes over synchronous runs of real presets, as Markdown."""
    lines = [
        "| case | pairs | synchronous: collect + learn + other = iteration, ms "
        "| asynchronous: longer part + between, ms | speed-up | lowest - highest | target | met |",
        "|---|---:|---|---|---:|---|---:|---|",
    ]
    for case in cases:
        sync, lanes = ({name: _median_of(case, side, name) for name in case["pairs"][0][side]} for side in _SIDES)
        ratios = [pair["ratio"] for pair in case["pairs"]]
        target = case["target"]
        other = sync["iteration"] - sync["collect"] - sync["learn"]
        cells = (
            case["case"],
            len(ratios),
            f"{sync['collect']:.1f} + {sync['learn']:.1f} + {other:.1f} = {sync['iteration']:.1f}",
            f"{lanes['iteration'] - lanes['between']:.1f} + {lanes['between']:.1f}",
            f"{case['median']:.2f}x",
            f"{min(ratios):.2f} - {max(ratios):.2f}",
            "" if target is None else f"{target}x",
            "" if target is None else "yes" if case["median"] >= target else "NO",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def scaling_table(record: Record) -> str:
    """Speed and memory of growing work, as Markdown; see `benchmarks.scaling`."""
    lines = [
        "| work | size | unit | minding | peak MB | peer | its figure | its peak MB | minding over peer |",
        "|---|---:|---|---:|---:|---|---:|---:|---:|",
    ]
    for row in record["rows"]:
        lines.append(f"| {row['title']} | {row['size']:,} | {row['unit']} | {' | '.join(scaling_cells(row))} |")
    return "\n".join(lines)


def scaling_cells(row: Record) -> tuple[str, ...]:
    """Medians of both sides of a row, and the median speed-up of the pairs; what did not run is said in its place."""
    ours, theirs = (_median_reading(row[side]) for side in ("ours", "theirs"))
    if not row["peer"]:
        return (*ours, "", "", "", "")
    pairs = list(zip(row["ours"], row["theirs"]))
    ratios = [ours["value"] / theirs["value"] for ours, theirs in pairs]
    if row["unit"] == "ms":
        ratios = [1.0 / ratio for ratio in ratios]
    return (*ours, row["peer"], *theirs, f"{np.median(ratios):.2f}x" if ratios else "")


def _median_reading(readings: list[Record]) -> tuple[str, str]:
    if not readings:
        return "failed", ""
    value, peak = (float(np.median([reading[name] for reading in readings])) for name in ("value", "peak_mb"))
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}", f"{peak:,.0f}"


_SIDES = ("sync", "async")


def _median_of(case: Record, side: str, name: str) -> float:
    return float(np.median([pair[side][name] for pair in case["pairs"]]))


def search_table(record: Record) -> str:
    """Simulations per second of tree search beside OpenSpiel's, as Markdown; see `benchmarks.search`."""
    lines = [
        "| games | search | minding | OpenSpiel, Python | ratio | OpenSpiel, C++ | ratio |",
        "|---:|---|---:|---:|---|---:|---|",
    ]
    found = {(row["peer"], row["games"]): row for row in record["rows"]}
    for games in dict.fromkeys(row["games"] for row in record["rows"]):
        for search, python, cpp in (("UCT", "python", "cpp"), ("PUCT", "python_puct", None)):
            rows = [found.get((peer, games)) for peer in (python, cpp)]
            known = [row for row in rows if row is not None]
            if not known:
                continue
            cells = [part for row in rows for part in (_side(row) if row is not None else ("", ""))]
            mine = float(np.median([row["ours"] for row in known]))
            lines.append(f"| {games} | {search} | {mine:,.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def critics_table(record: Record) -> str:
    """Gradient steps per second of processor time by the number of critics, as Markdown; see `benchmarks.critics`."""
    lines = ["| algorithm | gradient steps per second | lowest - highest | over SAC |", "|---|---:|---|---:|"]
    for row in record["rows"]:
        cells = (row["name"], f"{row['median']:.0f}", f"{row['lowest']:.0f} - {row['highest']:.0f}")
        lines.append(f"| {' | '.join(cells)} | {row['median'] / record['rows'][0]['median']:.2f}x |")
    return "\n".join(lines)


def _side(row: Record) -> tuple[str, str]:
    return f"{row['peer_value']:,.0f}", f"{row['ratio']:.2f}x ({row['lowest']:.2f} - {row['highest']:.2f})"


def dreamer_table(record: Record) -> str:
    """Time of an update of Dreamer beside eager PyTorch, as Markdown; see `benchmarks.dreamer`."""
    lines = [
        "| posterior: minding | PyTorch | minding, ms | PyTorch, ms | ratio | lowest - highest | ratio by the clock |",
        "|---|---|---:|---:|---|---|---|",
    ]
    for row in record["rows"]:
        cpu, wall = row["cpu_ms"], row["wall_ms"]
        spread = f"{cpu['lowest']:.2f} - {cpu['highest']:.2f}"
        cells = (f"{cpu['ours']:.1f}", f"{cpu['peer']:.1f}", f"{cpu['ratio']:.2f}x", spread, f"{wall['ratio']:.2f}x")
        lines.append(f"| `{row['ours']}` | `{row['peer']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def publish(name: str, record: Record, out: Path | None) -> None:
    """Writes a result of `BESIDE` to ``benchmarks/results`` and its table into ``docs``, or to another file alone."""
    root = Path(__file__).resolve().parent
    path = out or root / "results" / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if out is None:
        update(root.parent / "docs", lambda marker, page: beside_table(record) if marker == f"bench_{name}" else None)


def beside_table(record: Record) -> str:
    """A table of `BESIDE`, and what it was measured with."""
    pairs = record["rows"][0]["pairs"]
    table = BESIDE[record["name"]](record)
    return f"{table}\n\nMedians of {pairs} pairs on {record['cpu']}, load {record['load']}. {versions_of(record)}.\n"


def versions_of(machine: Record) -> str:
    """The versions of each side, which has an interpreter of its own; `machine` is from `report.describe_machine`."""
    sides = [side for side in ("minding", "peers", "xuance") if machine.get(side)]
    return "; ".join(f"{side}: {', '.join(f'{k} {v}' for k, v in machine[side].items())}" for side in sides)


BESIDE: dict[str, Callable[[Record], str]] = {"search": search_table, "dreamer": dreamer_table}
"""Results that have a peer, by the name of their file."""
TABLES: dict[str, Callable[[Record], str]] = {
    "async_overlap": overlap_table,
    "critics": critics_table,
    "scaling": scaling_table,
    "async_presets": lambda record: presets_table(record["cases"]),
}
