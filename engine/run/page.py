"""One HTML file about runs: results, curves, settings and times. It needs no other file and no network."""

import base64
import dataclasses
import html
import json
import math
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minding.engine.config.compiler import load_config
from minding.engine.config.options import plain
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError, printable
from minding.engine.files import read_bounded, read_text, replace
from minding.engine.paths import shown, without_home
from minding.engine.run.comparison import ComparedRun, compare_runs, tables_over_seeds
from minding.engine.run.curves import Curve, learning_curves
from minding.engine.run.metrics import read_metrics
from minding.engine.run.plotting import DRAWN, plot_curves, plot_metrics, plot_of_run, plot_profiles, plot_trace
from minding.engine.run.run_dir import RunDir
from minding.engine.run.run_summary import judged_figures, units_of
from minding.engine.types import Array

_MAX_FILM = 1 << 25
_MAX_TRACE = 1 << 26
_MOST_NAME, _MOST_LANES = 30, 200
"""Characters of a name in a trace that are shown; lanes, and names, that a trace may have."""
_PANELS = 12
"""Maximum number of metrics of learning that are drawn."""
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { line-height: 1.2; margin-bottom: .2rem; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
p.lead { margin-top: 0; opacity: .8; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; } code, pre { font: .9em/1.4 ui-monospace, monospace; }
td code { overflow-wrap: anywhere; } pre { background: var(--soft); padding: .8rem; overflow-x: auto; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
/* On a dark page, a figure has its brightness turned round and keeps its hues; a film stays as it is. */
@media (prefers-color-scheme: dark) { figure img:not([src^="data:image/gif"]) {
  filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; } }
figcaption { font-size: .9em; opacity: .8; }
@media print { body { max-width: none; } h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs from its default: its path, the value, and the default."""

    path: str
    value: Any
    default: Any


Changed = Callable[[Mapping[str, Any]], Sequence[Setting] | None]
"""Maps a run's configuration to the settings that differ from their defaults; None if the defaults are not known."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """A run on the page: its name, folder, figures and configuration."""

    name: str
    folder: RunDir
    figures: ComparedRun
    cfg: Mapping[str, Any]


def write_page(
    paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str], changed: Changed
) -> list[ComparedRun]:
    """Writes an HTML page about runs, atomically: an earlier file stays whole until the new one is complete."""
    runs = _named(compare_runs(paths))
    page = _page(runs, changed)
    replace(out, page, make=True)
    return [run.figures for run in runs]


def _named(compared: Sequence[ComparedRun]) -> list[_Run]:
    """The runs by the parts of their paths that differ."""
    paths = [run.path.absolute() for run in compared]
    above = Path(os.path.commonpath([path.parent for path in paths]))
    folders = [RunDir(run.path) for run in compared]
    return [
        _Run(str(path.relative_to(above)), folder, run, plain(load_config(folder.config)))
        for path, folder, run in zip(paths, folders, compared, strict=True)
    ]


def _page(runs: Sequence[_Run], changed: Changed) -> str:
    title = _title([run.cfg for run in runs])
    seeds = sorted({str(run.cfg.get("seed")) for run in runs}, key=lambda text: (len(text), text))
    lead = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, seed{'' if len(seeds) == 1 else 's'} {', '.join(seeds)}"
    sections = [
        ("Result", _results(runs)),
        ("Learning curve", _curves(runs)),
        ("What the trained agent does", _film(runs)),
        ("Settings that differ from the defaults", _settings(runs, changed)),
        ("Learning in detail", _details(runs)),
        ("Where the time went", _time(runs)),
        ("Run it again", _commands(runs)),
    ]
    body = "\n".join(f"<section>\n<h2>{_text(name)}</h2>\n{content}\n</section>" for name, content in sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_text(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The page fetches and runs nothing, whatever the files of the run contain.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{_text(title)}</h1>\n"
        f'<p class="lead">{_text(lead)}</p>\n{body}\n</body>\n</html>\n'
    )


def _title(cfgs: Sequence[Mapping[str, Any]]) -> str:
    def named(section: str, key: str) -> str:
        found = dict.fromkeys(str((cfg.get(section) or {}).get(key)) for cfg in cfgs)
        return ", ".join(list(found)[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    return f"{named('policy', 'type')} on {named('env', 'env_id')}"


def _results(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        figures, result, episodes = run.figures, "none", ""
        if figures.scores:
            # Outcomes of games are not normally distributed: see the table below.
            value, _, n_episode = figures.evaluation or (math.nan, 0.0, 0)
            result, episodes = f"score {value:.3f}", str(n_episode)
        elif figures.evaluation is not None:
            value, std, n_episode = figures.evaluation
            result, episodes = f"{value:.1f} ± {std:.1f}", str(n_episode)
        elif figures.judged:
            result = "; ".join(f"{name} {text}" for name, text in judged_figures(figures.judged).items())
        seconds = "" if figures.seconds is None else f"{figures.seconds:,.0f} s"
        steps = f"{figures.steps:,} {units_of(run.cfg)[figures.unit]}"
        rows.append([run.name, result, episodes, steps, seconds, figures.ended_by or "not ended"])
    header = ["run", "final evaluation", "episodes", "steps", "time", "ended by"]
    returns = any(run.figures.evaluation and not run.figures.scores for run in runs)
    note = (
        "<p>The final evaluation is the mean return of the final policy without exploration ± the standard deviation "
        "of its episodes.</p>"
    )
    return _table(header, rows, numbers=(1, 2, 3, 4)) + (note if returns else "") + _scores(runs)


def _scores(runs: Sequence[_Run]) -> str:
    """The scores of self-play against each opponent."""
    rows = [
        [run.name, opponent, f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]", f"{score.games:,}"]
        for run in runs
        for opponent, score in run.figures.scores.items()
    ]
    if not rows:
        return ""
    note = (
        "<p>A game that is won scores 1, a draw 0.5, a loss 0. The final evaluation is the mean over all opponents. "
        "The 95 % interval of a score (Wilson) is for the number of games.</p>"
    )
    return _table(["run", "against", "score", "games"], rows, numbers=(2, 3)) + note


def _curves(runs: Sequence[_Run]) -> str:
    try:
        curves = learning_curves([run.folder.path for run in runs])
    except ConfigError as error:
        return f"<p>None: {_text(error)}</p>"
    caption = "A star is the final evaluation."
    if len(runs) == 1:
        (run,) = runs
        cfg, metrics, figures = load_config(run.folder.config), read_metrics(run.folder.metrics), run.folder.figures()
        return _drawn(lambda path: plot_of_run(cfg, metrics, figures, path), ".svg", "Learning curve", caption)
    if any(curve.n_runs > 1 for curve in curves):
        caption = "Faint lines are single seeds. A star is the mean of the final evaluations."
    return _over_seeds(curves) + _drawn(lambda path: plot_curves(curves, path), ".svg", "Learning curves", caption)


def _over_seeds(curves: Sequence[Curve]) -> str:
    """The final evaluations of the configurations with several seeds, as `tables_over_seeds` and as profiles."""
    groups: dict[str, dict[str, Sequence[float]]] = {}
    # Scores are at most 1.
    digits = 3 if any(curve.games for curve in curves) else 1
    for curve in curves:
        if len(curve.finals) > 1:
            where = f"{curve.env_id}{f' against {curve.opponent}' if curve.opponent else ''}"
            groups.setdefault(where, {})[curve.label] = curve.finals
    parts = [
        f"<h3>{_text(title)}, on {_text(where)}</h3>{_table(header, rows, numbers=range(1, len(header)))}"
        for where, among in groups.items()
        for title, header, rows in tables_over_seeds(among, lambda value: f"{value:.{digits}f}")
    ]
    panels = {where: among for where, among in groups.items() if len(among) > 1}
    if panels:
        caption = "Performance profile: the share of runs whose final evaluation is above a return."
        parts.append(_drawn(lambda path: plot_profiles(panels, path), ".svg", "Performance profile", caption))
    return "".join(parts)


def _film(runs: Sequence[_Run]) -> str:
    for run in runs:
        path = run.folder.video
        if not path.is_file():
            continue
        try:
            film = read_bounded(path, _MAX_FILM)
        except (OSError, ConfigError) as error:
            return f"<p>{_text(path)} is not shown: {_text(error)}</p>"
        return _figure(film, "image/gif", "An episode", f"An episode of {run.name} without exploration.")
    command = f"minding record {_quoted(runs[0].folder.path)}{_where(runs[0])}"
    return f"<p>There is no film yet: <code>{_text(command)}</code> makes one.</p>"


def _settings(runs: Sequence[_Run], changed: Changed) -> str:
    found = [changed(run.cfg) for run in runs]
    if all(each is None for each in found):
        return "<p>The defaults of this algorithm are not known here; config.yaml of the run has all its settings.</p>"
    paths = dict.fromkeys(setting.path for each in found for setting in each or ())
    if not paths:
        return "<p>None.</p>"
    tables = [{setting.path: setting for setting in each or ()} for each in found]
    rows = []
    for path in paths:
        defaults = dict.fromkeys(_value(table[path].default) for table in tables if path in table)
        values = [_value(table[path].value) if path in table else "default" for table in tables]
        same = len(set(values)) == 1
        rows.append([path, *(values[:1] if same else [_by_run(runs, values)]), " or ".join(defaults)])
    return _table(["setting", "value", "default"], rows, code=(0, 1, 2))


def _by_run(runs: Sequence[_Run], values: Sequence[str]) -> str:
    """The values with the names of their runs; for many runs, the values only."""
    if len(runs) > 6:
        return ", ".join(dict.fromkeys(values))
    return ", ".join(f"{value} ({run.name})" for run, value in zip(runs, values, strict=True))


def _details(runs: Sequence[_Run]) -> str:
    tables: dict[str, Mapping[str, Array]] = {}
    for run in runs:
        try:
            tables[run.name] = read_metrics(run.folder.metrics)
        except ConfigError:
            continue  # The curve said why.
    names = [name for name in dict.fromkeys(name for table in tables.values() for name in table) if _is_detail(name)]
    if not names:
        return "<p>None: no metrics of learning were written.</p>"
    shown = names[:_PANELS]
    left = "" if len(names) == len(shown) else f" {len(names) - len(shown)} more are in metrics.csv."
    caption = f"Metrics of learning, one line for each run.{left}"
    return _drawn(lambda path: plot_metrics(tables, shown, path), ".svg", "Metrics of learning", caption)


def _is_detail(name: str) -> bool:
    return name.startswith("train/") and name not in ("train/grad_steps", "train/updates_per_step")


def _time(runs: Sequence[_Run]) -> str:
    parts = []
    speeds = [(run, run.folder.figures().get("steps_per_second")) for run in runs]
    rows = [[run.name, f"{value:,.0f} {units_of(run.cfg)[run.figures.unit]}/s"] for run, value in speeds if value]
    if rows:
        parts.append(_table(["run", "speed"], rows, numbers=(1,)))
    trace = next((found for run in runs if (found := _trace_of(run.folder.path))), None)
    if trace is None:
        parts.append(
            "<p>No timeline was recorded: train with <code>run.trace=true</code> (or <code>--trace</code>) to see what "
            "ran when, and where the time went by middleware.</p>"
        )
        return "\n".join(parts)
    path, events = trace
    try:
        events = _brief(events)
        parts.append(_table(["middleware", "seconds", "share"], _shares(events), numbers=(1, 2)))
        caption = f"The last {DRAWN:g} seconds of {path.name}: what ran when, one row for each lane."
        parts.append(_drawn(lambda at: plot_trace(events, at, seconds=DRAWN), ".png", "Timeline", caption))
    except (KeyError, TypeError, ValueError, AttributeError):
        parts.append(f"<p>{_text(path / 'trace.json')} is not shown: it is not a timeline of minding.</p>")
    return "\n".join(parts)


def _trace_of(path: Path) -> tuple[Path, Any] | None:
    try:
        return path, json.loads(read_text(path / "trace.json", _MAX_TRACE))
    except (OSError, ValueError, RecursionError, ConfigError):
        return None


def _brief(trace: Mapping[str, Any]) -> Mapping[str, Any]:
    """A trace with short names: those of a file from anyone would take minutes to draw."""
    events, names, lanes = [], set(), set()
    for event in trace["traceEvents"]:
        args = event.get("args") or {}
        if "name" in args:
            args = {**args, "name": _short_name(args["name"])}
        events.append({**event, "name": _short_name(event.get("name", "")), "args": args})
        names.add(events[-1]["name"])
        lanes.add(event["tid"])
    if max(len(names), len(lanes)) > _MOST_LANES:
        raise ValueError(f"{len(lanes)} lanes, {len(names)} names")
    return {**trace, "traceEvents": events}


def _short_name(name: object) -> str:
    # Between two $ stands a formula.
    return str(name)[:_MOST_NAME].replace("$", "")


def _shares(trace: Mapping[str, Any]) -> list[list[str]]:
    """The seconds of each kind of span within its lane, and their share of the lane's busy time."""
    lanes = {event["tid"]: str(event["args"]["name"]) for event in trace["traceEvents"] if event["ph"] == "M"}
    spent: dict[tuple[str, str], float] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            key = lanes.get(event["tid"], ""), str(event["name"])
            spent[key] = spent.get(key, 0.0) + event["dur"] / 1e6
    totals: dict[str, float] = {}
    for (lane, _), seconds in spent.items():
        totals[lane] = totals.get(lane, 0.0) + seconds
    rows = []
    for (lane, name), seconds in sorted(spent.items(), key=lambda item: -item[1]):
        label = name if len(lanes) == 1 else f"{lane}: {name}"
        rows.append([label, f"{seconds:.2f}", f"{100 * seconds / (totals[lane] or 1.0):.1f} %"])
    return rows


def _where(run: _Run) -> str:
    """The option that names an environment, for a run without one."""
    return " --env ID" if (run.cfg.get("env") or {}).get("env_id") == RECORDED else ""


def _commands(runs: Sequence[_Run]) -> str:
    played = [
        f"minding {name} {_quoted(run.folder.path)}{_where(run)}" for run in runs[:1] for name in ("eval", "record")
    ]
    lines = [*played, *(f"minding resume {_quoted(run.folder.path)}" for run in runs[:1])]
    lines += [f"minding train {_quoted(run.folder.config)}" for run in runs]
    return f"<pre>{_text(chr(10).join(lines))}</pre>"


def _drawn(draw: Callable[[Path], None], suffix: str, name: str, caption: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"picture{suffix}"
        draw(path)
        return _figure(path.read_bytes(), {".svg": "image/svg+xml", ".png": "image/png"}[suffix], name, caption)


def _figure(picture: bytes, kind: str, name: str, caption: str) -> str:
    data = base64.b64encode(picture).decode("ascii")
    return (
        f'<figure><img alt="{_text(name)}" src="data:{kind};base64,{data}">'
        f"<figcaption>{_text(caption)}</figcaption></figure>"
    )


def _table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), code: Sequence[int] = ()
) -> str:
    def cell(tag: str, column: int, text: str) -> str:
        kind = ' class="number"' if column in numbers else ""
        content = f"<code>{_text(text)}</code>" if column in code and tag == "td" else _text(text)
        return f"<{tag}{kind}>{content}</{tag}>"

    lines = [("th", header), *(("td", row) for row in rows)]
    cells = ["".join(cell(tag, column, text) for column, text in enumerate(row)) for tag, row in lines]
    return '<div class="scroll"><table>\n' + "\n".join(f"<tr>{each}</tr>" for each in cells) + "\n</table></div>"


def _quoted(path: Path) -> str:
    # The page is for others, too.
    return shlex.quote(without_home(shown(path.absolute())))


def _value(value: Any) -> str:
    text = without_home(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _text(text: object) -> str:
    return html.escape(printable(text, lines=True))
