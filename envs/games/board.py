"""Board games as environments of one player, who plays against an opponent."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces

from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.errors import ConfigError, GameError
from minding.engine.search.opponents import Opponent, as_opponent, ask
from minding.engine.search.puct import random_legal
from minding.engine.search.rules import check_rules, stones_of
from minding.engine.types import Array, BoardGame, State
from minding.envs.games.boards.breakthrough import Breakthrough
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.gomoku import Gomoku
from minding.envs.games.boards.histories import openspiel_game, pettingzoo_game
from minding.envs.games.boards.othello import Othello
from minding.envs.games.boards.tic_tac_toe import TicTacToe
from minding.envs.games.game_vector import Game, GameVector

First: TypeAlias = bool | Literal["random"]
_SELF = re.compile(r"self(:(\d{1,6}))?")
"""The opponent's name where the agent plays both sides, after an opening of up to this number of plies."""


class BoardVector(GameVector):
    """N board games in one NumPy step; the opponent chooses all its actions of a step in one call.

    Attributes:
      second: bool ``(N,)``, whether the opponent had the first ply.
      over: bool ``(N,)``, whether the game has ended.
      to_move: bool ``(N,)``, whether the agent would move next; always true while the game runs.
    """

    def __init__(
        self,
        num_envs: int,
        game: BoardGame,
        opponent: str | Opponent = "random",
        first: First = "random",
        max_episode_steps: int | None = None,
    ) -> None:
        if not isinstance(first, bool) and first != "random":
            raise ConfigError(f"first={first!r}: expected true, false or 'random', drawn in each episode")
        if not _is_checked(game):
            check_rules(game)
        initial = game.initial(num_envs)
        observation_space = spaces.Dict(
            {
                OBSERVATION: spaces.Box(0.0, 1.0, game.planes(initial).shape[1:], np.float32),
                ACTION_MASK: spaces.MultiBinary(game.actions),
            }
        )
        super().__init__(num_envs, observation_space, spaces.Discrete(game.actions), max_episode_steps)
        self.game = game
        both = _SELF.fullmatch(opponent) if isinstance(opponent, str) else None
        self.opponent = None if both else as_opponent(opponent, game)
        self._opening = int(both[2] or 0) if both else 0
        self.second, self.over = np.zeros(num_envs, bool), np.zeros(num_envs, bool)
        self.to_move = np.ones(num_envs, bool)
        self._first = first
        self._parts = tuple(f"position_{k}" for k in range(len(initial)))
        self._put(np.arange(num_envs), initial)
        self.native_state = (*self._parts, "second", "over", "steps")

    @property
    def position(self) -> State:
        """The current positions of all games."""
        return tuple(getattr(self, part) for part in self._parts)

    def _put(self, rows: Array, state: State) -> None:
        for name, part in zip(self._parts, state):
            whole = getattr(self, name, None)
            whole = np.empty((self.num_envs, *part.shape[1:]), part.dtype) if whole is None else whole.copy()
            whole[rows] = part
            setattr(self, name, whole)

    def _begin(self, rows: Array) -> None:
        self.over[rows], self.to_move[rows] = False, True
        self._put(rows, self.game.initial(len(rows)))
        if self.opponent is None:
            self.second[rows] = False
            self._open(rows)
            return
        drawn = self._first == "random"
        self.second[rows] = self.np_random.random(len(rows)) < 0.5 if drawn else not self._first
        begun = rows[self.second[rows]]
        self._reply(begun, np.zeros_like(begun))

    def _open(self, rows: Array) -> None:
        """Plays a random number of random plies in `rows`, except those that would end the game."""
        plies = self.np_random.integers(0, self._opening + 1, len(rows))
        for ply in range(self._opening):
            going = rows[plies > ply]
            if not going.size:
                return
            before = tuple(part[going] for part in self.position)
            state, over, _ = self.game.play(before, random_legal(self.game, before, self.np_random))
            self._put(going[~over], tuple(part[~over] for part in state))

    def _reply(self, rows: Array, plies: Array) -> Array:
        """Lets the opponent play in `rows`, whose games have had `plies` plies; returns the outcomes for the agent."""
        assert self.opponent is not None
        if not rows.size:
            return np.zeros(0)
        state = tuple(part[rows] for part in self.position)
        action = ask(self.opponent, self.game, state, self.np_random, plies, rows)
        state, over, outcome = self.game.play(state, action)
        self._put(rows, state)
        self.over[rows] = over
        return outcome

    def _move(self, actions: Array) -> tuple[Array, Array]:
        rows, state = np.arange(self.num_envs), self.position
        plies = self.steps if self.opponent is None else 2 * self.steps + self.second
        wrong = ~self.game.legal(state)[rows, actions]
        if wrong.any():
            n = int(wrong.argmax())
            raise GameError(
                f"action {actions[n]} is illegal in {type(self.game).__name__}, game {n}, ply "
                f"{plies[n] + 1}: obey the entry {ACTION_MASK!r} of the observation"
            )
        state, over, outcome = self.game.play(state, actions)
        self._put(rows, state)
        self.over[:], self.to_move[:] = over, ~over
        reward = -outcome.astype(np.float64)
        if self.opponent is None:
            return reward, self.over.copy()
        running = np.flatnonzero(~over)
        reward[running] = self._reply(running, plies[running] + 1)
        return reward, self.over.copy()

    def _observe(self) -> dict[str, Array]:
        state = self.position
        legal = self.game.legal(state) & ~self.over[:, None]
        return {OBSERVATION: self.game.planes(state), ACTION_MASK: legal.astype(np.int8)}


_SQUARE = 40  # pixels
_BOARD, _HOLE = (38, 92, 168), (232, 238, 246)
_OF_AGENT, _OF_OPPONENT = (214, 69, 65), (244, 197, 66)


def draw(stones: Array) -> Array:
    """A picture, uint8 ``(40 H, 40 W, 3)``, of a board with round stones: the agent's red (1 in `stones`, ``(H, W)``)
    and the opponent's yellow (-1)."""
    height, width = stones.shape
    squares = np.full((height, width, 3), _HOLE, np.uint8)
    squares[stones > 0], squares[stones < 0] = _OF_AGENT, _OF_OPPONENT
    center = np.arange(_SQUARE) - (_SQUARE - 1) / 2
    inside = np.hypot(center[:, None], center) < 0.42 * _SQUARE
    picture = np.kron(squares, np.ones((_SQUARE, _SQUARE, 1), np.uint8))
    picture[~np.tile(inside, (height, width))] = _BOARD
    return picture


class BoardEnv(Game):
    """A board game against an opponent. Each step is a ply of the agent and the opponent's reply.

    Where the agent plays both sides, a step is one ply, and observation and reward are those of the player to move.

    Observation: `observation`, the rules' `planes` for the player to move, and `action_mask`, the legal actions. After
    an end the planes are those of the player who would move next, and the mask forbids every action. The reward is the
    outcome: 1 for a win, -1 for a loss, 0 for a draw and before the end. An illegal action raises a GameError.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1.5}  # noqa: RUF012

    def __init__(
        self,
        game: BoardGame,
        opponent: str | Opponent = "random",
        first: First = "random",
        render_mode: str | None = None,
    ) -> None:
        self._board = BoardVector(1, game, opponent, first)
        super().__init__(self._board)
        self.game, self.render_mode = game, render_mode

    def render(self) -> Array | None:
        if self.render_mode is None:
            return None
        stones = stones_of(self.game, self._board.position)
        if stones is None:
            raise GameError(
                f"{type(self.game).__name__}: its planes do not show where the stones are: give the rules a method "
                "stones(state), or the environment a render() of its own"
            )
        return draw(stones[0] if self._board.to_move[0] else -stones[0])


RULES: dict[str, Callable[..., BoardGame]] = {
    "breakthrough": Breakthrough,
    "classic": pettingzoo_game,
    "connect_four": ConnectFour,
    "gomoku": Gomoku,
    "openspiel": openspiel_game,
    "othello": Othello,
    "tic_tac_toe": TicTacToe,
}
"""Makers of rules, some of which have settings."""


_checked: dict[int, BoardGame] = {}
"""The rules that `_checked_rules` made, by their identity."""


def _is_checked(game: BoardGame) -> bool:
    return _checked.get(id(game)) is game


@functools.cache
def _checked_rules(rules: str, **options: Any) -> BoardGame:
    """The rules with these settings; they are made and checked once per process."""
    game = RULES[rules](**options)
    check_rules(game)
    _checked[id(game)] = game
    return game


def _rules_of(rules: str, options: dict[str, Any]) -> BoardGame:
    """The rules with the settings `options`; ConfigError if they do not fit."""
    try:
        inspect.signature(RULES[rules]).bind(**options)
        hash(tuple(options.values()))
    except TypeError as error:
        raise ConfigError(f"env.env_kwargs={options} do not fit the rules of {rules}: {error}") from error
    return _checked_rules(rules, **options)


class RulesEnv(BoardEnv):
    """A board game by the name of its rules (one of `RULES`) against an opponent, see `BoardEnv`."""

    def __init__(
        self,
        rules: str,
        opponent: str | Opponent = "random",
        first: First = "random",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(_rules_of(rules, options), opponent, first, render_mode)


class RulesVector(BoardVector):
    """The vector version of `RulesEnv`."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        rules: str,
        opponent: str | Opponent = "random",
        first: First = "random",
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_envs, _rules_of(rules, options), opponent, first, max_episode_steps)
