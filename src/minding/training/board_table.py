"""A table at which a trained policy of a board game plays, in the terminal or through a pipe."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.configs import compile_saved
from minding.engine.config.config import Config
from minding.engine.errors import ConfigError, MindingError
from minding.engine.run.run_dir import RunDir
from minding.engine.search import opponents
from minding.engine.search.opponents import Opponent, SearchPlayer, ask, search
from minding.engine.search.rules import stones_of
from minding.engine.search.search_tree import Evaluate, Found
from minding.engine.types import Array, BoardGame, State
from minding.envs import make_board_game
from minding.middleware.board_search import check_fits, eval_options, judge_of
from minding.training.loading import load_policy

_MARKS = "XO"
_CHECKPOINT = "checkpoint"


def board_game_of(run: RunDir) -> tuple[Config, BoardGame]:
    """The configuration of a run of self-play, and the rules of its game; works without MindSpore."""
    cfg = compile_saved(run)
    if "search" not in cfg.policy.collect:
        raise ConfigError(
            f"{run.path}: policy.type={cfg.policy.type!r} does not search; expected a run of self-play, "
            "such as minding train tictactoe_alphazero"
        )
    return cfg, make_board_game(cfg)


def opponent_named(name: str, game: BoardGame) -> Callable[[], Opponent]:
    """The factory of a named opponent: a name for `opponents.parse`, or ``checkpoint:FOLDER`` for another agent."""
    kind, _, folder = name.partition(":")
    if kind != _CHECKPOINT:
        try:
            opponent = opponents.parse(name, game)
        except ConfigError as error:
            raise ConfigError(f"{error}; checkpoint:FOLDER is the agent of another run") from None
        return lambda: opponent
    if not folder:
        raise ConfigError(f"opponent={name!r}: expected checkpoint:FOLDER, the folder of a run")
    run = RunDir.open(Path(folder))
    cfg, _ = board_game_of(run)
    try:
        check_fits(cfg, game)
    except MindingError as error:
        raise type(error)(f"opponent={name!r}: {error}") from None
    return lambda: checkpoint(run, game, name=name)


def checkpoint(run: RunDir | str | Path, game: BoardGame, *, name: str | None = None) -> Opponent:
    """The trained agent of a run as an opponent, with the search of its evaluations."""
    run = run if isinstance(run, RunDir) else RunDir.open(run)
    cfg, policy, _ = load_policy(run)
    judge = judge_of(cfg, policy.eval_mode, game, _CHECKPOINT)
    options = eval_options(cfg, cfg.policy.eval.simulations)
    return SearchPlayer(judge, options, name or f"{_CHECKPOINT}:{run.path.name}")


@dataclasses.dataclass(frozen=True)
class Thought:
    """The agent's judgment of one position.

    Attributes:
      prior: the network's policy, float32 ``(A,)``.
    """

    action: int
    value: float
    prior: Array
    found: Found | None

    def table(self) -> list[str]:
        """Lines of text, one per legal action: visits, prior, mean value."""
        lines = ["action  visits   prior   value"]
        for action in np.flatnonzero(self.prior > 0).tolist():
            visits, value = "-", "-"
            if self.found is not None:
                visits = str(int(self.found.visits[0, action]))
                mean = float(self.found.action_value[0, action])
                value = "-" if np.isnan(mean) else f"{_signed(mean)}"
            chosen = "  <" if action == self.action else ""
            lines.append(f"{action:6}  {visits:>6}  {self.prior[action]:6.3f}  {value:>6}{chosen}")
        return lines


class BoardAgent:
    """An agent that plays a board game."""

    def __init__(self, cfg: Config, game: BoardGame, evaluate: Evaluate, simulations: int) -> None:
        self._game, self._evaluate, self._options = game, evaluate, eval_options(cfg, simulations)
        self._rng = np.random.default_rng(cfg.seed)

    def think(self, state: State) -> Thought:
        """Searches one position; returns the agent's judgment of it."""
        if self._options is not None:
            found = search(self._game, state, self._evaluate, self._options, self._rng)
            return Thought(int(found.best[0]), float(found.value[0]), found.prior[0], found)
        logits, value = self._evaluate(state)
        masked = np.where(self._game.legal(state), logits, -np.inf)[0].astype(np.float64)
        prior = np.exp(masked - masked.max())
        return Thought(int(masked.argmax()), float(value[0]), prior / prior.sum(), None)


def _signed(value: float) -> str:
    """A number as text with two digits and a sign; 0 has a plus."""
    return f"{round(value, 2) + 0.0:+.2f}"


def board_text(game: BoardGame, state: State, mover: int, over: bool = False) -> list[str]:
    """The board and the legal actions as lines.

    X is a stone of the first player, O one of the second. Where there is an action per square, an empty square shows
    the number of its legal action; where there is one per column, a line below the board numbers them. Other games, and
    those that do not say where the stones are, have a line with the numbers of all legal actions.
    """
    stones: Any = stones_of(game, state)
    legal: list[int] = [] if over else np.flatnonzero(game.legal(state)[0]).tolist()
    height, width = (0, 0) if stones is None else stones.shape[1:]
    size, numbered = len(str(game.actions - 1)), game.actions == height * width
    shown: set[int] = set()
    lines = []
    for row in range(height):
        cells = []
        for column in range(width):
            number, stone = row * width + column, int(stones[0, row, column])
            if stone:
                cell = _MARKS[mover if stone > 0 else 1 - mover]
            elif numbered and number in legal:
                shown.add(number)
                cell = str(number)
            else:
                cell = "."
            cells.append(cell.rjust(size))
        lines.append(" " + " ".join(cells))
    if game.actions == width and not numbered:
        shown.update(range(width))
        lines.append(" " + " ".join(str(column).rjust(size) for column in range(width)))
    if not shown.issuperset(legal):
        lines.append(f" legal: {_listed(legal)}")
    return lines


def _listed(actions: Sequence[int]) -> str:
    """Numbers in ascending order as text, with runs of three or more as ranges: ``0, 3-9, 12``."""
    runs: list[list[int]] = []
    for action in actions:
        if runs and action == runs[-1][-1] + 1:
            runs[-1].append(action)
        else:
            runs.append([action])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


class Table:
    """One game between the agent and a human or another opponent."""

    def __init__(
        self,
        game: BoardGame,
        agent: BoardAgent,
        *,
        second: bool,
        opponent: Opponent | None,
        show_search: bool,
        read: Callable[[str], str],
        write: Callable[[str], Any],
        seed: int,
    ) -> None:
        self._game, self._agent, self._opponent = game, agent, opponent
        self._agent_side = 0 if second else 1
        self._show, self._read, self._write = show_search, read, write
        self._rng = np.random.default_rng(seed)
        # The positions so far, the newest last, and the actions between them.
        self._states: list[State] = [game.initial(1)]
        self._actions: list[int] = []

    def play(self) -> float | None:
        """Plays the game; returns its outcome for the agent, or None if the human left."""
        if self._opponent is None:
            self._write(f"you play {_MARKS[1 - self._agent_side]}: enter the number of a move, or undo, hint, quit")
        if stones_of(self._game, self._states[0]) is None:
            name = type(self._game).__name__
            self._write(f"no board is drawn: {name} has no method stones(state), and its planes do not show the stones")
        self._show_board()
        while True:
            side = len(self._actions) % 2
            action = self._agent_ply() if side == self._agent_side else self._other_ply()
            if action is None:
                self._write(f"left after {self._plies()}")
                return None
            state, over, outcome = self._game.play(self._states[-1], np.array([action]))
            self._actions.append(action)
            self._states.append(state)
            self._show_board(over=bool(over[0]))
            if over[0]:
                return self._end(float(outcome[0]))

    def _agent_ply(self) -> int:
        thought = self._agent.think(self._states[-1])
        if self._show:
            for line in thought.table():
                self._write(line)
        self._write(f"agent ({_MARKS[self._agent_side]}): {thought.action}, expects {_signed(thought.value)}")
        return thought.action

    def _other_ply(self) -> int | None:
        mark = _MARKS[1 - self._agent_side]
        if self._opponent is None:
            return self._asked(f"your move ({mark}): ")
        plies = np.array([len(self._actions)])
        action = int(ask(self._opponent, self._game, self._states[-1], self._rng, plies)[0])
        self._write(f"{self._opponent.name} ({mark}): {action}")
        return action

    def _asked(self, prompt: str) -> int | None:
        """The human's action; None at the end of the input or after ``quit``."""
        while True:
            line = self._read(prompt)
            word = line.strip().lower()
            if not line or word in ("quit", "q", "exit"):
                return None
            if word == "undo":
                self._undo()
            elif word == "hint":
                thought = self._agent.think(self._states[-1])
                for each in thought.table() if self._show else ():
                    self._write(each)
                self._write(f"hint: {thought.action}, expects {_signed(thought.value)} for you")
            elif word.isdecimal() and int(word) in (legal := self._legal()):
                return int(word)
            elif word.isdecimal():
                self._write(f"{word} is not a legal move here: expected one of {_listed(legal)}")
            elif word:
                self._write(
                    f"{word!r} is not a move: expected one of the numbers {_listed(self._legal())}, or undo, hint, quit"
                )

    def _legal(self) -> list[int]:
        legal: list[int] = np.flatnonzero(self._game.legal(self._states[-1])[0]).tolist()
        return legal

    def _undo(self) -> None:
        """Takes back the human's last ply and the agent's reply."""
        if len(self._actions) < 2:
            self._write("you have no move to take back")
            return
        del self._actions[-2:], self._states[-2:]
        self._show_board()

    def _end(self, outcome: float) -> float:
        """Prints the result and returns the agent's outcome; `outcome` is for the player who would move next."""
        agent = outcome if len(self._actions) % 2 == self._agent_side else -outcome
        other = "you win" if self._opponent is None else f"{self._opponent.name} wins"
        result = "the agent wins" if agent > 0 else "draw" if agent == 0 else other
        self._write(f"{result} after {self._plies()}")
        return agent

    def _plies(self) -> str:
        count = len(self._actions)
        return f"{count} {'ply' if count == 1 else 'plies'}"

    def _show_board(self, over: bool = False) -> None:
        for line in ("", *board_text(self._game, self._states[-1], len(self._actions) % 2, over)):
            self._write(line)
