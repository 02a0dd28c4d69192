"""Games between two opponents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minding.engine.errors import GameError
from minding.engine.search.opponents import Opponent, as_opponent, ask
from minding.engine.types import Array, BoardGame, State


class Played(NamedTuple):
    """The results of n games: the outcome for the player who moved first, 1, 0 or -1, and the plies played, int64
    ``(n,)`` each."""

    outcomes: Array
    plies: Array


def match(
    game: BoardGame,
    first: str | Opponent,
    second: str | Opponent,
    state: State,
    rng: np.random.Generator,
    plies: int = 0,
) -> Played:
    """Plays n games to their end, all at once.

    Args:
      game: the rules.
      first: the player who moves first in `state`; an opponent or its name.
      second: the other player.
      state: n positions of unfinished games, such as ``game.initial(n)`` or a list of openings.
      rng: random stream of both players.
      plies: number of plies that led to `state`, for messages.
    Returns:
      The outcomes for `first`, and the numbers of plies that were played from `state` on.
    Raises:
      ConfigError: if a player is neither an opponent nor the name of one.
      GameError: if an action is illegal, or a game is longer than `game.longest`.
    """
    one, other = as_opponent(first, game, "first"), as_opponent(second, game, "second")
    rows = np.arange(len(state[0]))
    outcomes, lengths = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for ply in range(plies, game.longest):
        # The outcome is given for the player to move next.
        player, sign = (one, -1) if (ply - plies) % 2 == 0 else (other, 1)
        action = ask(player, game, state, rng, np.full(len(rows), ply), rows)
        state, over, outcome = game.play(state, action)
        outcomes[rows[over]], lengths[rows[over]] = sign * outcome[over], ply + 1 - plies
        rows, state = rows[~over], tuple(part[~over] for part in state)
        if not rows.size:
            return Played(outcomes, lengths)
    raise GameError(f"{type(game).__name__}: game {rows[0]} is not over after longest={game.longest} plies")
