"""Tables of algorithms for several agents, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minding.configs import PRESETS, load_preset
from minding.envs.games.battle.rules import MAPS
from proofs.runs import Results

TEAMS = "teams"
"""Name of the file that says what random play and hand-coded controllers score, see `proofs.teams`."""
SPREAD, BATTLE = "mpe2/simple_spread_v3", "minding/Battle-v0"


def spread_table(results: Results) -> str:
    """Returns on simple_spread, and how far each algorithm comes from random play to the controller.

    Returns:
      An empty text before the two were measured, as `battle_table`.
    """
    bounds = results.single(TEAMS)
    if bounds is None:
        return ""
    played, ends = f"{bounds['episodes']} episodes", bounds["spread"]
    low, high = ends["random"][0], ends["controller"][0]
    rows = [f"| {name} | {mean:.1f} ± {error:.1f} | | {played} | | |" for name, (mean, error) in ends.items()]
    for preset in presets_of(SPREAD):
        records = results.of("learning", preset)
        if not records:
            continue
        means = [record["eval_mean"] for record in records]
        share, steps = (np.mean(means) - low) / (high - low), records[0]["env_step"]
        rows.append(
            f"| {_linked(preset)} | {np.mean(means):.1f}{_error(means)} | {min(means):.1f} to {max(means):.1f} "
            f"| {_seeds(means)} | {steps:,} | {_percent(share)} |"
        )
    head = "| | return, ± standard error | seeds from - to | measured over | env steps | share of the way |"
    return "\n".join([head, "|---|---:|---:|---|---:|---:|", *rows, ""])


def battle_table(results: Results) -> str:
    """Shares of won battles by map."""
    bounds = results.single(TEAMS)
    if bounds is None:
        return ""
    played = f"{bounds['episodes']} battles"
    rows = [
        f"| {name} | {player} | {_percent(won, 1)} | | {played} | |"
        for name, players in bounds["battle"].items()
        for player, won in players.items()
    ]
    for preset in presets_of(BATTLE):
        records = results.of("learning", preset)
        if not records:
            continue
        won = [record["eval_info"]["battle_won"] for record in records]
        rows.append(
            f"| {load_preset(preset).env.env_kwargs['map_name']} | {_linked(preset)} | {_percent(np.mean(won), 1)} "
            f"| {_percent(min(won))} to {_percent(max(won))} | {_seeds(won)} | {records[0]['env_step']:,} |"
        )
    rows.sort(key=lambda row: list(MAPS).index(row.split("|")[1].strip()))
    head = "| map | | won | seeds from - to | measured over | env steps |"
    return "\n".join([head, "|---|---|---:|---:|---|---:|", *rows, ""])


def presets_of(env_id: str) -> list[str]:
    """Names of the presets of an environment."""
    return [name for name in PRESETS if load_preset(name).env.env_id == env_id]


def _linked(preset: str) -> str:
    kind = load_preset(preset).policy.type
    return f"[{preset}]({kind}.md)"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _seeds(values: Sequence[float]) -> str:
    return f"{len(values)} seed{'s' if len(values) > 1 else ''}"


def _error(values: Sequence[float]) -> str:
    return f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
