"""Normalized scores by family of tasks beside published ones: the picture and the table with which Results begins.

0 is random play, 1 the score of the same algorithm on the same task in the benchmark of Stable-Baselines3's zoo.
``published.json`` holds those scores and the returns of random play, the mean of 100 episodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.configs import load_preset
from minding.engine.run.aggregates import Estimate, Statistic, estimate, interquartile_mean, mean
from minding.engine.run.plotting import new_figure, save_figure
from minding.engine.types import Array
from proofs.mujoco_table import NOT_MEASURED, PUBLISHED, REFERENCE, presets, whole_runs
from proofs.runs import Results

FAMILIES = {
    "classic control": ("经典控制", ("CartPole-v1", "Acrobot-v1", "Pendulum-v1"), None),
    "LunarLander": ("LunarLander", ("LunarLander-v3",), None),
    "MuJoCo, PPO": ("MuJoCo，PPO", None, "ppo"),
    "MuJoCo, SAC": ("MuJoCo，SAC", None, "sac"),
    "MuJoCo, TD3": ("MuJoCo，TD3", None, "td3"),
}
"""Families by name: the Chinese name, and their environments, or the algorithm of the queue on MuJoCo."""


class Family:
    """The normalized scores of a family.

    Attributes:
      strata: for each preset that is measured, the scores of its runs ``(n, 1)``.
      beside: the mean of the published scores of `REFERENCE` over the same presets; NaN if one is missing.
    """

    def __init__(self, results: Results, name: str) -> None:
        self.name = name
        self.chinese, env_ids, algorithm = FAMILIES[name]
        published = results.single("published") or {}
        zoo, mujoco = published.get("families", {"scores": {}, "random": {}}), published.get(PUBLISHED, {})
        goals, others = dict(zoo["scores"]), {}
        if algorithm is not None:
            goals, others = (
                {key: row[0] for key, row in mujoco.get(side, {}).get("scores", {}).items()}
                for side in ("SB3 zoo", REFERENCE)
            )
        members = [preset for preset in (goals if algorithm is None else presets()) if preset in goals]
        settings = {preset: load_preset(preset) for preset in members}
        members = [
            preset
            for preset, cfg in settings.items()
            if (cfg.policy.type == algorithm if env_ids is None else cfg.env.env_id in env_ids)
        ]
        self.strata: list[Array] = []
        beside = []
        for preset in members:
            runs = results.of("learning", preset) if algorithm is None else whole_runs(results, preset)
            low = zoo["random"].get(settings[preset].env.env_id, 0.0)
            if runs:
                scores = np.array([[run["eval_mean"]] for run in runs])
                self.strata.append((scores - low) / (goals[preset] - low))
                beside.append((others.get(preset, np.nan) - low) / (goals[preset] - low))
        self.beside = float(np.mean(beside)) if beside else float("nan")

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(map(len, self.strata))

    def over_runs(self, statistic: Statistic) -> Estimate:
        """A statistic of all runs, with its interval."""
        return estimate(self.strata, statistic)

    @property
    def has_interval(self) -> bool:
        """Whether a task has several runs: otherwise all draws are the same."""
        return max(map(len, self.strata)) > 1


def families_table(results: Results, chinese: bool = False) -> str:
    """One row per family, to be quoted."""
    english = ["tasks", "presets", "runs", "mean", "95 % interval", "IQM", f"{REFERENCE}, mean"]
    head = ["任务", "预设", "运行次数", "均值", "95% 区间", "IQM", f"{REFERENCE}，均值"] if chinese else english
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for family in map(lambda name: Family(results, name), FAMILIES):
        cells = [family.chinese if chinese else family.name, str(len(family.strata)), str(family.runs)]
        cells += ["尚未测量" if chinese else NOT_MEASURED, "", "", ""]
        if family.strata:
            found = family.over_runs(mean)
            cells[3:] = [
                f"{found.value:.2f}",
                f"{found.low:.2f} – {found.high:.2f}" if family.has_interval else "",
                f"{family.over_runs(interquartile_mean).value:.2f}",
                "" if np.isnan(family.beside) else f"{family.beside:.2f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def draw_families(results: Results) -> None:
    """Draws ``images/families.png``: a point per family with its interval, beside the published scores."""
    found = [family for family in (Family(results, name) for name in FAMILIES) if family.strata]
    if not found or not (results.docs / "images").is_dir():
        return
    figure, (axes,) = new_figure(height=1.1 + 0.55 * len(found), width=8)
    rows = np.arange(len(found))[::-1]
    estimates = [family.over_runs(mean) for family in found]
    axes.axvline(1.0, color="dimgray", linestyle="--", linewidth=1.2, label="Stable-Baselines3 zoo, published")
    axes.plot(
        *_marks([family.beside for family in found], rows),
        "D",
        color="tab:orange",
        label=f"{REFERENCE}, published (mean)",
    )
    values = np.array([each.value for each in estimates])
    reach = np.maximum(0.0, [values - [each.low for each in estimates], [each.high for each in estimates] - values])
    axes.errorbar(
        values, rows, xerr=reach, fmt="o", color="tab:blue", capsize=4, label="minding, mean and 95 % interval"
    )
    axes.set_yticks(rows, [f"{family.name}\n{len(family.strata)} presets, {family.runs} runs" for family in found])
    axes.set(xlabel="normalized score (0: random play)", ylim=(-0.6, len(found) - 0.4))
    axes.set_xlim(left=0.0)
    axes.legend(fontsize=8, loc="lower left")
    save_figure(figure, results.docs / "images" / "families.png")


def _marks(values: Sequence[float], rows: Array) -> tuple[Array, Array]:
    known = np.isfinite(values)
    return np.asarray(values)[known], rows[known]
