"""Every line of play against a deterministic player, enumerated: ``python -m proofs.board_lines RUN...``.

Of the trained agent of each run folder it counts the lines that are won, drawn and lost against all possible replies,
on either side: of AlphaZero for the bare network and for searches of several sizes, of other algorithms as they play in
evaluations. It ends with exit code 1 if a line is lost.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.run.run_dir import RunDir
from minding.engine.search.opponents import Opponent, SearchPlayer, ask
from minding.engine.types import Array, BoardGame, EvalMode, State
from minding.envs import make_board_game
from minding.middleware.board_search import eval_options, judge_of
from minding.policies import get_algorithm
from minding.training.loading import load_policy

SIMULATIONS = (0, 8, 16, 32, 64, 128)


class Lines(NamedTuple):
    """How the lines of play end, for the player."""

    won: int
    drawn: int
    lost: int

    def __add__(self, other: object) -> Lines:
        if not isinstance(other, Lines):
            return NotImplemented
        return Lines(self.won + other.won, self.drawn + other.drawn, self.lost + other.lost)


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """Plays as a policy does in evaluations."""

    mode: EvalMode
    name: str = "agent"

    def __call__(self, game: BoardGame, state: State, rng: np.random.Generator) -> Array:
        seen = obs_trees.from_nested({OBSERVATION: game.planes(state), ACTION_MASK: game.legal(state)})
        return self.mode.forward(seen)


def lines_against(game: BoardGame, player: Opponent, first: bool) -> Lines:
    """Plays `player` against every possible sequence of replies.

    Args:
      game: the rules.
      player: asked for all positions of a ply at once; it draws nothing.
      first: whether it has the first ply.
    Returns:
      The number of lines that it wins, draws and loses.
    """
    rng = np.random.default_rng(0)
    state, ends = game.initial(1), Lines(0, 0, 0)
    for ply in range(game.longest):
        own = (ply % 2 == 0) == first
        count = len(state[0])
        if own:
            rows = np.arange(count)
            actions = ask(player, game, state, rng, np.full(count, ply), rows)
        else:
            rows, actions = np.nonzero(game.legal(state))
        state, over, outcome = game.play(_taken(state, rows), actions)
        # The outcome is that of the player to move next.
        results = outcome[over] if not own else -outcome[over]
        ends += Lines(int((results > 0).sum()), int((results == 0).sum()), int((results < 0).sum()))
        state = _taken(state, ~over)
        if not len(state[0]):
            break
    return ends


def _taken(state: State, rows: Array) -> State:
    return tuple(part[rows] for part in state)


def lines_of_run(run: RunDir, simulations: Sequence[int] = SIMULATIONS) -> dict[int, tuple[Lines, Lines]]:
    """The lines of the trained agent of a run, playing first and second, by number of simulations."""
    cfg, policy, _ = load_policy(run)
    game = make_board_game(cfg)
    players: dict[int, Opponent]
    if get_algorithm(cfg.policy.type).chain == "self_play":
        judge = judge_of(cfg, policy.eval_mode, game, "board_lines")
        players = {count: SearchPlayer(judge, eval_options(cfg, count)) for count in simulations}
    else:
        players = {cfg.policy.collect.get("simulations", 0): Evaluated(policy.eval_mode)}
    return {
        count: (lines_against(game, each, True), lines_against(game, each, False)) for count, each in players.items()
    }


def main(folders: Sequence[str]) -> int:
    """Prints the lines of each run; returns 1 if one is lost."""
    lost = 0
    for folder in folders:
        for count, (first, second) in lines_of_run(RunDir.open(folder)).items():
            print(f"{folder}, {count} simulations: first {first}, second {second}", flush=True)
            lost += first.lost + second.lost
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
