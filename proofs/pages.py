"""From result files to the pages in ``docs``: tables between markers, and pictures of the curves.

A table stands between the markers of `benchmarks.pages`, whose name is a preset, one of `TABLES`, or `zoo`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import pages
from minding.configs import PRESETS, load_preset
from minding.engine.run.aggregates import aggregate, estimate, mean
from minding.engine.run.curves import mean_curve
from minding.engine.run.plotting import plot_curves
from minding.engine.run.run_summary import plays_itself
from minding.policies import ALGORITHMS
from proofs import offline_tables
from proofs.families import draw_families, families_table
from proofs.mujoco_table import aggregate_table, draw_grid, mujoco_table, replaced_table
from proofs.peer_defaults import peer_defaults_table
from proofs.runs import ASYNC, COLLECTING, LEARNING, OFFLINE, STUDY, Record, Results, changed_since
from proofs.steadiness import steadiness
from proofs.studies import STUDIES
from proofs.team_benchmark import benchmark_table
from proofs.zoo_table import ZOO, zoo_table

NOT_YET = "Not measured yet: `make proofs`.\n"


def update(results: Results) -> None:
    """Writes all tables and curves for which there is a marker in a page of ``results.docs``, and its pictures."""
    pages.update(results.docs, lambda name, page: table(results, name, page))
    offline_tables.draw(results)
    draw_grid(results)
    draw_families(results)


def table(results: Results, name: str, page: Path) -> str | None:
    """The Markdown between the markers of `name` in `page`; draws the curve of a preset into the page's folder ``img``.

    Returns:
      None where a name is not of the proofs.
    """
    if name in TABLES:
        return TABLES[name](results)
    chinese = results.docs / "zh" in page.parents
    if name == ZOO:
        return zoo_table(results, chinese)
    if name not in PRESETS:
        return None
    records = results.of("learning", name)
    if not records:
        return NOT_YET
    published = (results.single("published") or {}).get(name)
    folder = results.docs / "zh" if chinese else results.docs
    about = os.path.relpath(folder / "results.md", page.parent)
    # The pages of all languages show the same pictures.
    images = results.docs / page.relative_to(folder).parent / "img"
    words = _CHINESE if chinese else _ENGLISH
    picture = _curve(name, records, published, page, images, words["picture"])
    return _learning(name, records, about, words) + _beside(records, published) + picture


def one_line(kind: str, record: Record) -> str:
    """A result in a few words, for the terminal."""
    if kind in ("learning", ASYNC, STUDY, OFFLINE):
        mean = record["eval_mean"]
        return f"{_score(mean)} ± {_score(record['eval_std'], mean)}, {record['seconds']:.0f} s"
    if kind == "determinism":
        return "equal" if record["equal"] else f"DIFFERENT: {record['sha256']}"
    return f"{record['slope_percent_an_hour']:+.2f} % an hour, {record['last_mb']:.0f} MB"


_ENGLISH = {
    "seeds": "seeds",
    "return": "return of {} episodes",
    "env_step": "env steps",
    "train_iter": "gradient steps",
    "seconds": "[seconds]({}#times)",
    "to": "{} to {}",
    "each": "{} each",
    "reached": "{} of {} seeds reach {:g}. ",
    "mean": "Mean over seeds {}. ",
    "target": "Target {:g}. ",
    "picture": "evaluation return of {}",
}
_CHINESE = {
    "seeds": "随机种子",
    "return": "{} 个回合的回报",
    "env_step": "环境步",
    "train_iter": "梯度更新",
    "seconds": "[秒]({}#时间)",
    "to": "{} 至 {}",
    "each": "均为 {}",
    "reached": "{1} 个随机种子中 {0} 个达到 {2:g}。",
    "mean": "各随机种子的均值 {}。",
    "target": "目标 {:g}。",
    "picture": "{} 的评估回报",
}


def _learning(name: str, records: list[Record], about: str, words: dict[str, str] = _ENGLISH) -> str:
    """One row: what each seed scored, and from the lowest seed to the highest what else the environment reported."""
    target = LEARNING[name].target if name in LEARNING else None
    means = [r["eval_mean"] for r in records]
    verdict = words["mean"].format(_score(float(np.mean(means)))) if len(means) > 1 else ""
    if target is not None and verdict:
        verdict = words["reached"].format(sum(mean >= target for mean in means), len(means), target) + verdict
    elif target is not None:
        verdict = words["target"].format(target)

    def span(values: Sequence[float], form: str) -> str:
        low, high = format(min(values), form), format(max(values), form)
        return low if low == high else words["to"].format(low, high)

    columns = {
        words["seeds"]: _seed_range(records),
        f"[{words['return'].format(records[0]['eval_episodes'])}]({about})": _scores(means, words["each"]),
        **{f"`{key}`": span([r["eval_info"][key] for r in records], ".3g") for key in records[0].get("eval_info", {})},
        words["env_step"]: span([r["env_step"] for r in records], ",d"),
        words["train_iter"]: span([r["train_iter"] for r in records], ",d"),
        words["seconds"].format(about): span([r["seconds"] for r in records], ",.0f"),
    }
    if not records[0]["env_step"]:
        del columns[words["env_step"]]
    head = [f"| {' | '.join(columns)} |", f"|---|---|{'---:|' * (len(columns) - 2)}"]
    return "\n".join([*head, f"| {' | '.join(columns.values())} |", "", f"{verdict}`{_command_of(records)}`", ""])


def _scores(means: list[float], each: str = _ENGLISH["each"]) -> str:
    """The score of each seed, in their order; once where all have the same."""
    scores = [*map(_score, means)]
    return each.format(scores[0]) if len(scores) > 1 == len({*scores}) else ", ".join(scores)


def _seed_range(records: list[Record]) -> str:
    seeds = [record["seed"] for record in records]
    through = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if through else ",".join(map(str, seeds))


def _beside(records: list[Record], published: Record | None) -> str:
    """Evaluations beside published ones at three of the same step counts, the last of them included."""
    if published is None:
        return ""
    ours = [
        {**dict(zip(r["curve"]["env_step"], r["curve"]["eval_return"])), r["env_step"]: r["eval_mean"]} for r in records
    ]
    every = len(published["env_step"]) // 3
    lines = [
        f"| env steps | minding | {published['label']}, mean of {len(published['eval_return'])} seeds | its seeds |",
        "|---:|---:|---:|---:|",
    ]
    columns = zip(published["env_step"], zip(*published["eval_return"]))
    for step, theirs in list(columns)[::-every][2::-1]:
        means = [curve[step] for curve in ours if step in curve]
        mine = f"{np.mean(means):,.0f}" if means else ""
        lines.append(f"| {step:,} | {mine} | {np.mean(theirs):,.0f} | {min(theirs):,.0f} - {max(theirs):,.0f} |")
    return "\n".join(["", *lines, "", f"{published['label']}: {published['source']}. {published['note']}", ""])


def _curve(name: str, records: list[Record], published: Record | None, page: Path, images: Path, title: str) -> str:
    """Draws the curve of a preset into a folder; returns the picture for a page, unless this opens with it."""
    unit = next(key for key in records[0]["curve"] if key != "eval_return")
    runs = [(np.array(r["curve"][unit]), np.array(r["curve"]["eval_return"])) for r in records]
    runs = [(steps, returns) for steps, returns in runs if len(steps)]
    if not runs:
        return ""
    target = LEARNING[name].target if name in LEARNING else None
    # Returns of self-play are scores, and its steps are plies.
    chain = ALGORITHMS[load_preset(name).policy.type].chain
    games = records[0]["eval_episodes"] if plays_itself({"chain": chain}) else 0
    curves = [dataclasses.replace(mean_curve(name, runs), unit=unit, target=target, games=games)]
    if published is not None:
        steps = np.array(published["env_step"])
        curves.append(mean_curve(published["label"], [(steps, np.array(seed)) for seed in published["eval_return"]]))
    images.mkdir(parents=True, exist_ok=True)
    plot_curves(curves, images / f"{name}.png")
    shown = Path(os.path.relpath(images, page.parent), f"{name}.png").as_posix()
    picture = f"![{title.format(name)}]({shown})\n"
    return "" if picture in _opening(page) else f"\n{picture}"


def _opening(page: Path) -> str:
    """A page up to its first block of code or section: when to use the algorithm, and a picture, which results omit."""
    return re.split(r"^(?:```|## )", page.read_text(), maxsplit=1, flags=re.MULTILINE)[0] if page.is_file() else ""


def _seeds(results: Results) -> str:
    """All presets over their seeds, and the share of seeds that reach the target of their preset."""
    rows, reached, changed = [], [], 0
    for proof in LEARNING.values():
        records = results.of("learning", proof.preset)
        if not records:
            continue
        scores = [record["eval_mean"] for record in records]
        good = [] if proof.target is None else [float(score >= proof.target) for score in scores]
        if good:
            reached.append(np.array(good)[:, None])
        found = aggregate(scores)
        cells = (
            f"`{proof.preset}`",
            "" if proof.target is None else f"{proof.target:g}",
            f"{sum(good):.0f} of {len(good)}" if good else f"{len(scores)}",
            _score(found.mean.value),
            _score(found.iqm.value) if found.n > 3 else "",
            f"{_score(found.iqm.low)} to {_score(found.iqm.high)}"
            if found.n > 2 and found.iqm.low < found.iqm.high
            else "",
            "" if proof.target is None else steadiness(records, proof.target),
            f"{records[0]['env_step']:,}" if records[0]["env_step"] else "",
        )
        changed += changed_since(records[0])
        rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        return NOT_YET
    lines = ["| preset | target | seeds that reach it | mean | IQM | its interval | [stay](#stability) | env steps |"]
    lines += ["|---|---:|---|---:|---:|---:|---|---:|", *rows]
    lines += ["", f"{changed} of {len(rows)} rows are older than a change to the settings of their preset."]
    if reached:
        share, runs = estimate(reached, mean), sum(map(len, reached))
        lines += ["", f"{share.value:.0%} of {runs} seeds reach the target of their preset; 95 % interval, with seeds "
                  f"drawn within each of {len(reached)} presets: {share.low:.0%} to {share.high:.0%}."]  # fmt: skip
    return "\n".join([*lines, ""])


def _score(value: float, beside: float | None = None) -> str:
    """A return, or its deviation `beside` one: three decimals where returns are small."""
    size = value if beside is None else beside
    return f"{value:,.1f}" if abs(size) >= 10 else f"{value:,.3f}"


def _command_of(records: list[Record]) -> str:
    """The one command that runs these seeds again."""
    return str(records[0]["command"]).replace(f"seed={records[0]['seed']}", f"--seeds {_seed_range(records)}")


def _study(results: Results, name: str) -> str:
    """The variants of a preset, below the preset as it is where they run as long as its proof."""
    study, found = STUDIES[name], results.of_study(name)
    groups = {variant: found[variant] for variant in study.variants if variant in found}
    if not groups:
        return NOT_YET
    if study.env_step is None and (whole := results.of("learning", study.preset)[: study.seeds]):
        groups = {"nothing": whole, **groups}
    rows = []
    for variant, records in groups.items():
        means = [record["eval_mean"] for record in records]
        during = float(np.mean([np.mean(record["curve"]["eval_return"]) for record in records]))
        mean, seeds = _score(float(np.mean(means))), _scores(means)
        rows.append(f"| {variant} | {_score(during)} | {mean} | {seeds} |")
    head = f"| {study.doing} | mean of the evaluations during training | return of the final policy | its seeds |"
    return "\n".join([head, "|---|---:|---:|---|", *rows, ""])


def _async(results: Results) -> str:
    rows = []
    for proof in COLLECTING.values():
        records = results.of(ASYNC, proof.preset)
        if not records:
            continue
        means = [record["eval_mean"] for record in records]
        reached = "" if proof.target is None else f"{sum(mean >= proof.target for mean in means)} of {len(means)}"
        values = ", ".join(f"{mean:.1f}" for mean in means)
        rows.append(f"| {proof.preset} | {proof.env_step:,} | {values} | {proof.target or ''} | {reached} |")
    if not rows:
        return NOT_YET
    head = "| preset | env steps | return of 100 episodes, one per seed | target | reached |"
    return "\n".join([head, "|---|---:|---|---:|---|", *rows, ""])


def _async_speeds(results: Results) -> str:
    record = results.single("async_speeds")
    if record is None:
        return NOT_YET
    head = "| phase | env steps | age of weights: mean, most, bound | gradient steps per sample | MB halfway, at end |"
    lines = [head, "|---|---:|---|---:|---:|"]
    for name in ("slow_learner", "slow_collector"):
        row = record[name]
        lag = f"{row['mean_lag']:.2f}, {row['max_lag']:.0f}, {row['max_staleness']}"
        memory = f"{row['mb_at_the_middle']:.0f}, {row['mb_at_the_end']:.0f}"
        title = f"{name.replace('_', ' ')}, {record['factor']:.0f}x"
        lines.append(f"| {title} | {row['env_step']:,} | {lag} | {row['ratio_error']:+.2%} | {memory} |")
    return "\n".join([*lines, ""])


def _learners(results: Results) -> str:
    record = results.single("learners") or {}
    rows = [row for part in record.values() for row in part.get("compared", ())]
    if not rows:
        return NOT_YET
    last = list(rows[0]["drift"])[-1]
    lines = [f"| preset | learners | all learners | after {last} steps | one learner, begun apart |"]
    lines.append("|---|---:|---|---:|---:|")
    for row in sorted(rows, key=lambda row: (row["preset"], row["learners"])):
        equal = "equal" if row["ranks_equal"] else "DIFFERENT"
        drift = f"{row['drift'][last]:.1e} | {row['drift_of_nudged'][last]:.1e}"
        lines.append(f"| `{row['preset']}` | {row['learners']} | {equal} | {drift} |")
    killed = record.get("kill")
    if killed is not None:
        verdict = "no entry differs" if not killed["different"] else f"DIFFERENT: {', '.join(killed['different'])}"
        lines += [
            "",
            f"A learner of `{killed['preset']}` was killed: the run ended after {killed['seconds']:g} s with ",
        ]
        lines[-1] += f"{killed['messages']} message, and of {killed['entries']} entries of checkpoint, tables and "
        lines[-1] += f"summary at the end of the resumed run, {verdict}."
    return "\n".join([*lines, ""])


def _three_machines(results: Results) -> str:
    record = results.single("three_machines")
    if record is None:
        return NOT_YET
    lines = ["| fault | cluster: seconds to the exit | exit code | messages | last state saved |"]
    lines.append("|---|---|---:|---:|---|")
    faults: dict[str, list[Record]] = {}
    for row in record.get("faults", {}).get("rows", ()):
        faults.setdefault(row["fault"], []).append(row)
    for fault, rows in faults.items():
        runs = [each for row in rows for each in row["runs"]]
        seconds = ", ".join(f"{row['cluster']} {each['seconds']:.1f}" for row in rows for each in row["runs"])
        codes = ", ".join(sorted({str(each["code"]) for each in runs}))
        counts = ", ".join(sorted({str(len(each["messages"])) for each in runs}))
        saved = f"{sum(each['last_state_saved'] for each in runs)} of {len(runs)}"
        lines.append(f"| {fault} | {seconds} | {codes} | {counts} | {saved} |")
    head = ["order", "preset", "workers replaced", "environment steps", "gradient steps", "without the loss", "return"]
    lines += ["", f"| {' | '.join(head)} |", "|---|---|---:|---:|---:|---|---:|"]
    for row in record.get("lost", {}).get("rows", ()):
        lost, whole = row["lost"], row["whole"]
        same = f"{whole['env_step']:,} and {whole['train_iter']:,}"
        if "entries" in row:
            verdict = "no entry differs" if not row["different"] else f"DIFFERENT: {', '.join(row['different'][:5])}"
            same = f"of {row['entries']} entries, {verdict}"
        cells = [row["order"], f"`{row['preset']}`", str(lost["replaced"]), f"{lost['env_step']:,}"]
        cells += [f"{lost['train_iter']:,}", same, f"{lost['eval_return']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _async_kills(results: Results) -> str:
    record = results.single("async_kills")
    if record is None:
        return NOT_YET
    wait = record["recovery_seconds"]
    waits = f"{wait['median']:.1f} s (median), {wait['p95']:.1f} s (95 %), {wait['max']:.1f} s (slowest)"
    return (
        f"{record['kills']} kills of a random worker in {record['seconds']:.0f} s; training continued "
        f"{record['recovered']} times, after {waits}. Return after {record['env_step']:,} steps: "
        f"{record['eval_mean']:.1f} over {record['eval_episodes']} episodes.\n"
    )


def _determinism(results: Results) -> str:
    records = [record for name in LEARNING for record in results.of("determinism", name)]
    if not records:
        return NOT_YET
    rows = [
        f"| {r['preset']} | {r['env_step']:,} | {'equal' if r['equal'] else 'DIFFERENT'} | `{r['sha256'][0][:16]}` |"
        for r in records
    ]
    head = "| preset | env steps | two fresh processes | SHA-256 of the parameters |"
    return "\n".join([head, "|---|---:|---|---|", *rows, ""])


def _memory(results: Results) -> str:
    records = results.of("memory", "cartpole_ppo")
    if not records:
        return NOT_YET
    rows = [
        f"| {r['preset']} | {r['env_step']:,} | {r['first_mb']:.0f} | {r['last_mb']:.0f} "
        f"| {r['slope_percent_an_hour']:+.2f} | {r['slope_mb_a_million_steps']:+.2f} | {r['recompilations']} |"
        for r in records
    ]
    head = "| preset | env steps | MB after warm-up | MB at end | % per hour | MB per million steps | recompilations |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|", *rows, ""])


def _repeated_runs(results: Results) -> str:
    record = results.single("repeated_runs")
    if record is None:
        return NOT_YET
    rows = [
        f"| {name} | {each['runs']} | {each['resident_mb'][4]:.0f} | {each['resident_mb'][-1]:.0f} "
        f"| {each['mb_per_run']:+.2f} |"
        for name, each in record.items()
    ]
    head = "| case | runs | MB after the fifth | MB after the last | MB per run after the fifth |"
    return "\n".join([head, "|---|---:|---:|---:|---:|", *rows, ""])


def _kills(results: Results) -> str:
    records = [record for preset in results.presets("kills") for record in results.of("kills", preset)]
    if not records:
        return NOT_YET
    rows = [
        f"| {r['preset']} | {r['env_step']:,} | {r['kills']} | {r['runs']} | {r['compared']} "
        f"| {'equal' if r['equal'] else 'DIFFERENT: ' + ', '.join(r['different'][:3])} |"
        for r in records
    ]
    head = "| preset | env steps | kills | completed runs | digests compared | compared with an uninterrupted run |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---|", *rows, ""])


def _signals(results: Results) -> str:
    record = results.single("signals")
    if record is None:
        return NOT_YET
    found = [
        f"{name}: {each['good']} of {each['trials']} runs were saved, gone within 10 s and resumed, the slowest after "
        f"{each['slowest_seconds']:.1f} s; {each['orphans']} processes were left over."
        for name, each in record.items()
        if name.startswith("SIG")
    ]
    return "\n".join([*found, *filter(None, [record.get("note")]), ""])


def _faults(results: Results) -> str:
    record = results.single("faults")
    if record is None:
        return NOT_YET
    pairs = record["pairs"]
    ratios = [pair["ratio"] for pair in pairs]
    returns = [pair[side]["eval_mean"] for pair in pairs for side in ("with", "without")]
    return (
        textwrap.fill(
            f"With faults, runs are {record['median_ratio']:.2f} times as fast ({min(ratios):.2f} to "
            f"{max(ratios):.2f}, {len(pairs)} pairs of {record['env_step']:,} steps). All end at a return from "
            f"{min(returns):.1f} to {max(returns):.1f}.",
            120,
        )
        + "\n"
    )


def _crashes(results: Results) -> str:
    record = results.single("crashes")
    if record is None:
        return NOT_YET
    small, big = record["fallback"], record["fallback_big"]
    rows = [
        f"| kills and power cuts, over {record['calls_of_a_run']} calls that change the disk | {record['crashes']:,} |",
        f"| failing disks | {record['failing_disks']:,} |",
        f"| guarantees violated by these | {len(record['broken_promises'])} |",
        f"| damaged files | {record['damages']:,} |",
        f"| damage not detected | {len(record['damages_missed'])} |",
        f"| fallback to the one before, median and slowest | {small['median_s']:.3f} s, {small['max_s']:.3f} s |",
        f"| the same with a buffer of {big['rows']:,} rows | {big['median_s']:.2f} s, {big['max_s']:.2f} s |",
    ]
    return "\n".join(["| what | figure |", "|---|---:|", *rows, ""])


def _forged(results: Results) -> str:
    record = results.single("forged")
    if record is None:
        return NOT_YET
    kinds = {kind: row for kind, row in record.items() if isinstance(row, dict) and "cases" in row}
    cases, older, refused, read = (sum(row.get(name, 0) for row in kinds.values()) for name in _OUTCOMES)
    return (
        textwrap.fill(
            f"Of {cases:,} cases ({', '.join(kinds)}), {older} gave the older checkpoint, {refused} ended with one "
            f"clear line, and {read} gave values that a run could have written, after at most "
            f"{max(row['slowest_s'] for row in kinds.values()):.1f} s. Memory grew by {record['more_mb']} MB; "
            f"guarantees violated: {len(record['broken_promises'])}.",
            120,
        )
        + "\n"
    )


_OUTCOMES = ("cases", "older", "refused", "read")


def _defaults(results: Results) -> str:
    """Every algorithm with its own defaults on the small task of its kind."""
    found = results.single("defaults")
    if found is None:
        return NOT_YET
    lines = ["| algorithm | env steps | return |", "|---|---:|---:|"]
    for env_id in sorted({row["env_id"] for row in found.values()}):
        rows = {algorithm: row for algorithm, row in found.items() if row["env_id"] == env_id}
        play, floor = next((f"{row['random']:g}", f"{row['floor']:g}") for row in rows.values())
        lines.append(f"| **{env_id}** (random play {play}) | | at least {floor} |")
        lines += [f"| [{name}]({name}.md) | {row['env_step']:,} | {row['return']:.1f} |" for name, row in rows.items()]
    return "\n".join([*lines, ""])


TABLES: dict[str, Callable[[Results], str]] = {
    **{name: functools.partial(_study, name=name) for name in STUDIES},
    "async": _async,
    "async_kills": _async_kills,
    "async_speeds": _async_speeds,
    "crashes": _crashes,
    "defaults": _defaults,
    "determinism": _determinism,
    "families": families_table,
    "families_zh": functools.partial(families_table, chinese=True),
    "faults": _faults,
    "forged": _forged,
    "gail_rewards": lambda results: offline_tables.gail_table(results) or NOT_YET,
    "kills": _kills,
    "learners": _learners,
    "memory": _memory,
    "mujoco": mujoco_table,
    "mujoco_aggregate": aggregate_table,
    "mujoco_normalization": replaced_table,
    "offline": lambda results: offline_tables.offline_table(results) or NOT_YET,
    "peer_defaults": peer_defaults_table,
    "repeated_runs": _repeated_runs,
    "seeds": _seeds,
    "signals": _signals,
    "teams": benchmark_table,
    "three_machines": _three_machines,
}
