"""Teams on what others benchmark on: each algorithm with its own defaults, one run of a task per seed.

``python -m proofs.run --queue --only teams_mappo`` trains one algorithm on all tasks; the rows are those of studies.
The page is ``docs/results/teams.md``.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from minding.configs import PRESETS, load_preset
from minding.engine.run.aggregates import aggregate
from proofs.runs import STUDY, Job, Record, Results

ON_POLICY, OFF_POLICY = ("mappo", "ippo", "happo", "coma"), ("qmix", "vdn", "maddpg", "idqn")
STEPS = {**dict.fromkeys(ON_POLICY, 5_000_000), **dict.fromkeys(OFF_POLICY, 2_000_000)}
"""Environment steps of a run, by algorithm."""
PUBLISHED = "teams"
"""Name of the published scores in ``published.json``: by source, its note, its address and the scores, ``[mean]`` or
``[mean, half width of an interval]`` of ``<task> <algorithm>``."""
NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment that others benchmark on.

    Attributes:
      info: declared info, whose mean over the final episodes is a column.
      algorithms: those that are run.
    """

    env_id: str
    info: str = ""
    algorithms: tuple[str, ...] = (*ON_POLICY, *OFF_POLICY)

    @property
    def changes(self) -> tuple[str, ...]:
        """What a run overrides."""
        return (f"env.env_id={self.env_id}", *([f"env.info_keys=[{self.info}]"] if self.info else []))


TASKS = {
    "8x8-2p-2f-coop": Task("lbforaging:Foraging-8x8-2p-2f-coop-v3"),
    "10x10-3p-3f": Task("lbforaging:Foraging-10x10-3p-3f-v3"),
    "tiny-2ag": Task("rware:rware-tiny-2ag-v2", algorithms=("mappo", "ippo")),
    "simple_spread": Task("mpe2/simple_spread_v3"),
    "simple_speaker_listener": Task("mpe2/simple_speaker_listener_v4"),
    "3m": Task("smax/3m", "battle_won"),
    "2s3z": Task("smax/2s3z", "battle_won"),
    "5m_vs_6m": Task("smax/5m_vs_6m", "battle_won"),
}


def study_of(algorithm: str) -> str:
    """The name of the study to which the rows of an algorithm belong."""
    return f"teams_{algorithm}"


def jobs(seeds: int = 1) -> list[Job]:
    """All runs, the first seeds first."""
    return [
        Job(STUDY, algorithm, seed, STEPS[algorithm], task.changes, study=study_of(algorithm), variant=name)
        for seed in range(seeds)
        for name, task in TASKS.items()
        for algorithm in task.algorithms
    ]


def benchmark_table(results: Results) -> str:
    """A row for each task, a column for each algorithm; then the same of each source of published scores."""
    found = {algorithm: results.of_study(study_of(algorithm)) for algorithm in STEPS}
    lines = _grid(
        {(name, algorithm): _measured(found[algorithm].get(name, []), TASKS[name]) for name, algorithm in _runs()}
    )
    for source, each in ((results.single("published") or {}).get(PUBLISHED, {})).items():
        lines += ["", f"{source}: {each['note']} [Source]({each['source']}).", ""]
        scores = {(name, algorithm): each["scores"].get(f"{name} {algorithm}", ()) for name, algorithm in _runs()}
        lines += _grid({pair: " ± ".join(f"{value:g}" for value in score) for pair, score in scores.items()})
    return "\n".join([*lines, ""])


def presets_table(results: Results) -> str:
    """A row for each measured preset of simple_spread and Battle: its return, or the share of battles won."""
    lines = ["| preset | measure | mean | lowest to highest seed | seeds | env steps |", "|---|---|---:|---|---:|---:|"]
    for name in PRESETS:
        cfg, records = load_preset(name), results.of("learning", name)
        won = cfg.env.env_id == "minding/Battle-v0"
        if not records or not (won or cfg.env.env_id == TASKS["simple_spread"].env_id):
            continue
        values = [record["eval_info"]["battle_won"] if won else record["eval_mean"] for record in records]
        mean, low, high = (
            f"{each:.1%}" if won else f"{each:.1f}" for each in (np.mean(values), min(values), max(values))
        )
        measure = f"won on {cfg.env.env_kwargs['map_name']}" if won else "return"
        cells = f"{mean} | {low} to {high} | {len(records)} | {records[0]['env_step']:,}"
        lines.append(f"| [{name}]({cfg.policy.type}.md) | {measure} | {cells} |".replace("%", " %"))
    return "\n".join([*lines, ""])


def _runs() -> list[tuple[str, str]]:
    return [(name, algorithm) for name, task in TASKS.items() for algorithm in task.algorithms]


def _grid(cells: dict[tuple[str, str], str]) -> list[str]:
    heads = [f"[{algorithm.upper()}](../algorithms/{algorithm}.md)" for algorithm in STEPS]
    lines = [f"| task | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name, task in TASKS.items():
        row = [cells.get((name, algorithm), "") for algorithm in STEPS]
        lines.append(f"| `{task.env_id}` | {' | '.join(row)} |")
    return lines


def _measured(records: list[Record], task: Task) -> str:
    """The mean; of several seeds with its interval and the interquartile mean; the victories."""
    if not records:
        return NOT_MEASURED
    every = aggregate([record["eval_mean"] for record in records])
    parts = [f"{every.mean.value:.2f}"]
    if every.n > 1:
        interval = f"{every.mean.low:.2f} to {every.mean.high:.2f}"
        parts = [f"{parts[0]} ({interval}; IQM {every.iqm.value:.2f}; {every.n} seeds)"]
    if task.info:
        won = [record["eval_info"][task.info] for record in records]
        parts.append(f"{100 * sum(won) / len(won):.0f} % won")
    if (steps := records[0]["env_step"]) < STEPS[records[0]["preset"]]:
        parts.append(f"after {steps:,} steps")
    return ", ".join(parts)
