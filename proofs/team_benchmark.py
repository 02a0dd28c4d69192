"""Teams on what others benchmark on: each algorithm with its own defaults, one run of a task per seed.

``python -m proofs.run --queue --only teams_mappo`` trains one algorithm on all tasks; the rows are those of studies.
The page is ``docs/results/teams.md``.
"""

from __future__ import annotations

import dataclasses

from minding.engine.run.aggregates import aggregate
from proofs.runs import STUDY, Job, Record, Results

ON_POLICY, OFF_POLICY = ("mappo", "ippo", "happo", "coma"), ("qmix", "vdn", "maddpg", "idqn")
STEPS = {**dict.fromkeys(ON_POLICY, 5_000_000), **dict.fromkeys(OFF_POLICY, 2_000_000)}
"""Environment steps of a run, by algorithm."""
PUBLISHED = "teams"
"""Name of the published scores in ``published.json``: by source, its note, its address and the scores, ``[mean]`` or
``[mean, half width of an interval]`` of ``<task> <algorithm>``."""
NOT_MEASURED = "not measured"
_WON = "battle_won"


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment that others benchmark on.

    Attributes:
      algorithms: those that are run.
    """

    env_id: str
    algorithms: tuple[str, ...] = (*ON_POLICY, *OFF_POLICY)


TASKS = {
    "8x8-2p-2f-coop": Task("lbforaging:Foraging-8x8-2p-2f-coop-v3"),
    "10x10-3p-3f": Task("lbforaging:Foraging-10x10-3p-3f-v3"),
    "tiny-2ag": Task("rware:rware-tiny-2ag-v2", algorithms=("mappo", "ippo")),
    "simple_spread": Task("mpe2/simple_spread_v3"),
    "simple_speaker_listener": Task("mpe2/simple_speaker_listener_v4"),
    "3m": Task("smax/3m"),
    "2s3z": Task("smax/2s3z"),
    "5m_vs_6m": Task("smax/5m_vs_6m"),
}


def study_of(algorithm: str) -> str:
    """The name of the study to which the rows of an algorithm belong."""
    return f"teams_{algorithm}"


def jobs(seeds: int = 1) -> list[Job]:
    """All runs, the first seeds first."""
    return [
        Job(
            STUDY,
            algorithm,
            seed,
            STEPS[algorithm],
            (f"env.env_id={task.env_id}",),
            study=study_of(algorithm),
            variant=name,
        )
        for seed in range(seeds)
        for name, task in TASKS.items()
        for algorithm in task.algorithms
    ]


def benchmark_table(results: Results) -> str:
    """A row for each task, a column for each algorithm; then the same of each source of published scores."""
    found = {algorithm: results.of_study(study_of(algorithm)) for algorithm in STEPS}
    lines = _grid({(name, algorithm): _measured(found[algorithm].get(name, [])) for name, algorithm in _runs()})
    for source, each in ((results.single("published") or {}).get(PUBLISHED, {})).items():
        lines += ["", f"{source}: {each['note']} [Source]({each['source']}).", ""]
        scores = {(name, algorithm): each["scores"].get(f"{name} {algorithm}", ()) for name, algorithm in _runs()}
        lines += _grid({pair: " ± ".join(f"{value:.2f}" for value in score) for pair, score in scores.items()})
    return "\n".join([*lines, ""])


def _runs() -> list[tuple[str, str]]:
    return [(name, algorithm) for name, task in TASKS.items() for algorithm in task.algorithms]


def _grid(cells: dict[tuple[str, str], str]) -> list[str]:
    heads = [f"[{algorithm.upper()}](../algorithms/{algorithm}.md)" for algorithm in STEPS]
    lines = [f"| task | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name, task in TASKS.items():
        row = [cells.get((name, algorithm), "") for algorithm in STEPS]
        if any(row):
            lines.append(f"| `{task.env_id}` | {' | '.join(row)} |")
    return lines


def _measured(records: list[Record]) -> str:
    """The mean; of several seeds with its interval and the interquartile mean; the victories."""
    if not records:
        return NOT_MEASURED
    every = aggregate([record["eval_mean"] for record in records])
    parts = [f"{every.mean.value:.2f}"]
    if every.n > 1:
        interval = f"{every.mean.low:.2f} to {every.mean.high:.2f}"
        parts = [f"{parts[0]} ({interval}; IQM {every.iqm.value:.2f}; {every.n} seeds)"]
    if won := [record["eval_info"][_WON] for record in records if _WON in record.get("eval_info", {})]:
        parts.append(f"{100 * sum(won) / len(won):.0f} % won")
    if (steps := records[0]["env_step"]) < STEPS[records[0]["preset"]]:
        parts.append(f"after {steps:,} steps")
    return ", ".join(parts)
