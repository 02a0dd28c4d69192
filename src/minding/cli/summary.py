"""The summary that `minding train` and `minding resume` print at the end of a run."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minding.cli.common import drawn, echo, mean_and_spread, print_fields

if TYPE_CHECKING:
    from minding.engine.config.config import Config
    from minding.engine.run.run_dir import RunDir


def print_summary(cfg: Config, run_dir: RunDir, summary: Any, *, draw: bool) -> None:
    """Prints the figures of a finished run with its curve, and draws the curve as a picture."""
    from minding.engine.checkpoint import resumable_checkpoints
    from minding.engine.config.trust import is_foreign
    from minding.engine.data.episode import RECORDED
    from minding.envs.config import env_settings
    from minding.envs.single.factory import env_factory

    picture = _curve(cfg, run_dir, summary, draw)
    # Board games render no images, but people can play against their agents.
    games = cfg.chain == "self_play"
    following = {
        "continue": _command("resume", run_dir.path),
        "evaluate": _command("eval", run_dir.path),
        "play" if games else "film": _command("play" if games else "record", run_dir.path),
        "again": _command("train", run_dir.config),
    }
    if cfg.env.env_id == RECORDED:
        following["evaluate"] += " --env ID"
        del following["film"]
    elif not games and not env_factory(env_settings(cfg.env)).renders:
        del following["film"]
    if is_foreign(run_dir.config):
        following = {name: f"{text} --trust" for name, text in following.items()}
    if not resumable_checkpoints(run_dir.checkpoints):
        # No policy was saved that could play.
        following = {"again": following["again"]}
    elif draw and not summary.unsaved:
        del following["continue"]
    figures = {**_figures(cfg, summary), "curve": picture, **following}
    echo()
    print_fields(figures)


def _curve(cfg: Config, run_dir: RunDir, summary: Any, draw: bool) -> str:
    """Prints the curve, and draws it as a picture if there is time; returns its path, or why there is no picture."""
    from minding.engine.chain.context import UNITS
    from minding.engine.errors import ConfigError
    from minding.engine.run.curves import EVAL_RETURN, MEASURES, main_column, points_of_run, unjudged
    from minding.engine.run.metrics import read_metrics
    from minding.engine.run.plotting import terminal_curve
    from minding.engine.run.run_summary import plays_itself

    if not run_dir.metrics.exists():
        return "none: the run ended before its first row of metrics"
    try:
        metrics = read_metrics(run_dir.metrics)
    except ConfigError as error:
        return f"not drawn: {error}"
    points = points_of_run(cfg, metrics)
    column = main_column(points)
    if column is None:
        if summary.n_eval_episodes:
            return f"none: no evaluation came before the final one (policy.eval.freq={cfg.policy.eval.get('freq')})"
        return "none" if unjudged(cfg) else "none: the run ended before its first return"
    kind, measure = MEASURES[column]
    if column != EVAL_RETURN:
        echo(f"\n{kind}: {measure}")
    unit = "plies" if plays_itself(cfg) else UNITS[summary.unit].replace("environment", "env")
    echo("\n" + terminal_curve(*points[column], unit))
    if not draw:
        return f"drawn by {_command('plot', run_dir.path)}"
    return _draw_curve(cfg, run_dir, metrics, summary)


def report_unsaved(run_dir: RunDir) -> None:
    """Reports which checkpoint remains of a run whose last state could not be saved."""
    from minding.engine.checkpoint import newest_checkpoint, read_manifest
    from minding.engine.errors import CheckpointError
    from minding.engine.paths import shown

    try:
        newest = newest_checkpoint(run_dir.checkpoints)
        manifest = read_manifest(newest)
        at = f"{manifest['unit']} {manifest[manifest['unit']]:,}"
        left = f"the newest is {shown(newest)} at {at}: {_command('resume', run_dir.path)}"
    except CheckpointError:
        left = "there is no earlier checkpoint: start the run again"
    echo(f"minding: the last checkpoint could not be saved; {left}", err=True)


def _command(name: str, path: Path) -> str:
    from minding.engine.paths import shown

    return f"minding {name} {shlex.quote(shown(path))}"


def _draw_curve(cfg: Config, run_dir: RunDir, metrics: Any, summary: Any) -> str:
    """Draws the picture of the curve; returns its path, or why it was not drawn."""
    from minding.engine.run.plotting import plot_of_run

    return drawn(run_dir.curve, lambda file: plot_of_run(cfg, metrics, vars(summary), file))


def _normalized(summary: Any) -> dict[str, str]:
    """The normalized return if it is known; for a run that learned only from data, otherwise why it is not known."""
    if not math.isnan(summary.eval_normalized):
        return {"normalized return": f"{summary.eval_normalized:.1f} (random 0, expert 100)"}
    if summary.unit == "train_iter" and summary.n_eval_episodes:
        return {"normalized return": "not known: the data carry no reference returns, so the return is raw"}
    return {}


def _evaluations(cfg: Config, summary: Any) -> dict[str, str]:
    """The evaluations of the final policy: by returns, on recorded data, or none."""
    from minding.engine.data.episode import RECORDED
    from minding.engine.run.curves import unjudged
    from minding.engine.run.run_summary import judged_figures, opponent_of, plays_itself

    if plays_itself(cfg):
        return _scores(cfg, summary)
    returns = f"{mean_and_spread(summary.eval_return, summary.eval_std)} over {summary.n_eval_episodes} episodes"
    returns += f" of {summary.eval_length:.4g} steps"
    if opponent := opponent_of(cfg):
        returns += f", against {opponent}"
    judged = judged_figures(summary.data_eval)
    nothing = unjudged(cfg)
    if nothing:
        return {"evaluation": f"none: {nothing}"}
    if cfg.env.env_id == RECORDED:
        return judged or {"evaluation": "none: the run ended before its policy could be evaluated"}
    return {"evaluation return": returns if summary.n_eval_episodes else "none", **_normalized(summary), **judged}


def _scores(cfg: Config, summary: Any) -> dict[str, str]:
    """The scores of the final policy in games against opponents."""
    from minding.engine.run.run_summary import final_scores

    if not summary.n_eval_episodes:
        return {"mean score": "none"}
    scores = final_scores(cfg, vars(summary))
    return {
        "mean score": f"{summary.eval_return:.3f} over {summary.n_eval_episodes:,} games",
        **{f"against {opponent}": str(score) for opponent, score in scores.items()},
    }


def _figures(cfg: Config, summary: Any) -> dict[str, str]:
    from minding.engine.config.config import run_length
    from minding.engine.paths import shown
    from minding.engine.run.run_summary import plays_itself, units_of

    counters, units = dict.fromkeys((summary.unit, "train_iter")), units_of(cfg)
    info = {} if plays_itself(cfg) else summary.eval_info
    limit, reached = run_length(cfg).steps, getattr(summary, summary.unit)
    asked = {summary.unit: f" ({limit:,} were reached in the last iteration)"} if 0 < limit < reached else {}
    lost = "  (removed or renamed during the run: it holds only files written later)" if summary.folder_lost else ""
    return {
        **_evaluations(cfg, summary),
        **{f"mean {name}": f"{value:.4g}" for name, value in info.items()},
        **{units[name]: f"{getattr(summary, name):,}{asked.get(name, '')}" for name in counters},
        "time": f"{summary.wall_time:.1f} s, {summary.steps_per_second:,.0f} {units[summary.unit]}/s",
        "ended by": str(summary.stop_reason),
        "run folder": f"{shown(summary.run_dir)}{lost}",
        "checkpoints": shown(summary.ckpt),
    }
