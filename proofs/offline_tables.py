"""Tables and pictures of what was learned from recorded data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from minding.configs import load_preset
from minding.engine.data.references import References
from minding.engine.run.plotting import new_figure, save_figure
from proofs.data_sets import DataSet, data_sets
from proofs.recordings import REFERENCES
from proofs.runs import LEARNING, Record, Results

GAIL = {"Acrobot-v1": "gail_acrobot", "CartPole-v1": "gail_cartpole"}
"""Studies of GAIL beside constant rewards, by environment."""
_COLORS = {"last": "tab:blue", "best": "tab:orange"}


@dataclasses.dataclass(frozen=True)
class Row:
    """A preset on data.

    Attributes:
      data: what it learned from.
      preset: its name.
      records: of its seeds.
      target: of a preset on its own data.
    """

    data: DataSet
    preset: str
    records: list[Record]
    target: float | None

    @property
    def last(self) -> list[float]:
        """The final evaluation of each seed."""
        return [record["eval_mean"] for record in self.records]

    @property
    def best(self) -> list[float]:
        """The best evaluation of each seed: during learning, or the final one."""
        return [max(*record["curve"]["eval_return"], record["eval_mean"]) for record in self.records]

    @property
    def evaluations(self) -> int:
        """Of a seed, with the final one."""
        return len(self.records[0]["curve"]["eval_return"]) + 1


def rows(results: Results) -> list[Row]:
    """Presets on recorded data, those on their own data first, without BC's."""
    found = []
    for data in data_sets().values():
        records = {preset: results.of("learning", preset) for preset in data.presets}
        own = [Row(data, preset, of, LEARNING[preset].target) for preset, of in records.items() if of]
        others = results.on_data(data.name)
        found += [*own, *(Row(data, preset, of, None) for preset, of in others.items() if preset != "bc")]
    return found


def offline_table(results: Results) -> str:
    """Algorithm by data set, beside BC and the data; an empty text before BC has learned from any."""
    lines = []
    for row in rows(results):
        cloned = results.on_data(row.data.name).get("bc", [])
        if not cloned:
            continue
        references = REFERENCES.get(row.data.env_id)
        data = cloned[0]["data"]["return_mean"]
        reached = "" if row.target is None else f"{sum(x >= row.target for x in row.last)} of {len(row.last)}"
        cells = (
            row.data.title,
            _score([data], references),
            _score([record["eval_mean"] for record in cloned], references),
            _linked(row.preset),
            _score(row.last, references),
            ", ".join(f"{value:.0f}" for value in row.last),
            "" if row.target is None else f"{row.target:g}, {reached}",
            f"{_score(row.best, references)}, of {row.evaluations}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return ""
    head = "| data | their mean return | BC | preset | last evaluation | its seeds | target, reached | best |"
    return "\n".join([head, "|---|---:|---:|---|---:|---|---|---:|", *lines, ""])


def gail_table(results: Results) -> str:
    """GAIL beside constant rewards; an empty text before any of it was measured."""
    lines = []
    for env_id, name in GAIL.items():
        found = results.of_study(name)
        own = results.of("learning", "acrobot_gail") if env_id == "Acrobot-v1" else []
        groups = {**({"logit": own} if own and found else {}), **found}
        for variant, records in sorted(groups.items()):
            means = [record["eval_mean"] for record in records]
            command = records[0]["command"].replace("seed=0", f"--seeds 0-{len(means) - 1}")
            label = variant if variant.startswith("constant") else f"GAIL, `{variant}`"
            seeds = ", ".join(f"{value:.0f}" for value in means)
            lines.append(f"| {env_id} | {label} | {np.mean(means):.1f} | {seeds} | `{command}` |")
    if not lines:
        return ""
    head = "| environment | rewards | return of 100 episodes | its seeds | command |"
    return "\n".join([head, "|---|---|---:|---|---|", *lines, ""])


def draw(results: Results) -> None:
    """Writes the pictures of ``docs/results/offline_runs.md`` whose figures were measured."""
    learned = [row for row in rows(results) if row.data.env_id in REFERENCES]
    if learned:
        draw_best_and_last(learned, results.docs / "images" / "offline_best_last.png")
    switch = results.single("switch")
    if switch is not None:
        draw_switch(switch, REFERENCES["Pendulum-v1"], results.docs / "images" / "offline_switch.png")


def draw_best_and_last(learned: list[Row], path: Path) -> None:
    """The last evaluation of each preset on its data, and the best one beside it: normalized, single seeds faint."""
    figure, (axes,) = new_figure(height=1.2 + 0.34 * len(learned), width=8)
    for place, row in enumerate(learned):
        normalized = REFERENCES[row.data.env_id].normalized
        means = {}
        for name, values in (("best", row.best), ("last", row.last)):
            scores = [normalized(value) for value in values]
            means[name] = float(np.mean(scores))
            axes.plot(scores, [place] * len(scores), "|", color=_COLORS[name], alpha=0.5, markersize=9)
            label = f"{name} evaluation" if place == 0 else None
            axes.plot([means[name]], [place], "o", color=_COLORS[name], label=label, zorder=3)
        axes.plot([means["last"], means["best"]], [place, place], color="lightgray", linewidth=3, zorder=1)
    axes.set_yticks(range(len(learned)), [f"{row.preset}, {row.data.kind}" for row in learned], fontsize="small")
    axes.invert_yaxis()
    axes.axvline(100.0, color="dimgray", linestyle="--", linewidth=1)
    axes.set_xlabel("normalized return (0: random play, 100: expert)")
    axes.grid(visible=False, axis="y")
    axes.legend(fontsize="small", loc="lower left")
    save_figure(figure, path)


def draw_switch(record: Record, references: References, path: Path) -> None:
    """Evaluations on data, then in the environment."""
    figure, (axes,) = new_figure(height=3.6, width=8)
    offline, online = record["offline"], record["online"]
    end = offline["train_iter"][-1]
    axes.plot(offline["train_iter"], [references.normalized(x) for x in offline["eval_return"]], "o-", markersize=4,
              label="learns from the replay set")  # fmt: skip
    start = references.normalized(offline["eval_return"][-1])
    scores = [start, *(references.normalized(x) for x in online["eval_return"])]
    axes.plot([end, *(end + step for step in online["env_step"])], scores, "o-", markersize=4,
              label="continues in the environment")  # fmt: skip
    axes.axvline(end, color="dimgray", linestyle="--", linewidth=1)
    axes.axhline(start - 10.0, color="tab:red", linestyle=":", linewidth=1, label="10 below its start")
    axes.set_xlabel(f"gradient steps on data, then {end:,} + environment steps")
    axes.set_ylabel("normalized return")
    axes.legend(fontsize="small", loc="lower right")
    save_figure(figure, path)


def _score(values: list[float], references: References | None) -> str:
    """A mean return, and in brackets what it is normalized."""
    mean = float(np.mean(values))
    return f"{mean:,.1f}" if references is None else f"{mean:,.1f} ({references.normalized(mean):.0f})"


def _linked(preset: str) -> str:
    return f"[{preset}](../algorithms/{load_preset(preset).policy.type}.md)"
