"""Rules of games that other packages play one at a time; a state is the history of actions.

The packages are OpenSpiel (Lanctot et al., 2019, https://arxiv.org/abs/1908.09453) and PettingZoo (Terry et al., 2021,
https://arxiv.org/abs/2009.14471).
"""

import copy
from collections import OrderedDict
from typing import Any, Protocol

import numpy as np

from minding.engine.config.named import OPENSPIEL
from minding.engine.errors import ConfigError, GameError, nearest
from minding.engine.process.packages import import_extra, import_installed
from minding.engine.types import Array, State

_MOST_PLIES = 10_000
_HELD = 8192
"""Positions that are kept as objects of the package."""


class Package(Protocol):
    """A game of another package. Its positions are objects that are never modified."""

    name: str
    actions: int

    def initial(self) -> Any:
        """The initial position."""

    def after(self, position: Any, action: int) -> Any:
        """A new position."""

    def player(self, position: Any) -> int | None:
        """The player to move, 0 or 1; None if the game is over."""

    def legal(self, position: Any) -> Array:
        """The legal actions, bool ``(A,)``; none if the game is over."""

    def outcome(self, position: Any, player: int) -> float:
        """Positive if the player has won, negative if he has lost, 0 for a draw; the game is over."""

    def planes(self, position: Any, player: int) -> Array:
        """The network's input from the view of a player, float32 ``(C, H, W)``."""


class HistoryGame:
    """The rules of a game of another package, as `engine.types.BoardGame`.

    A state is ``(history,)``, the actions so far, integers ``(n, longest)``, with -1 for plies to come. Positions are
    rebuilt from it: the package's objects for the latest of them are kept and are not part of a state, so checkpoints
    and lanes hold numbers only.
    """

    def __init__(self, package: Package, longest: int) -> None:
        if isinstance(longest, bool) or not isinstance(longest, int) or not 1 <= longest <= _MOST_PLIES:
            raise ConfigError(
                f"longest={longest!r}: expected the plies after which {package.name} is a draw, an integer from 1 to "
                f"{_MOST_PLIES:,}: set env.env_kwargs.longest"
            )
        self.actions, self.longest = package.actions, longest
        self._package = package
        self._held: OrderedDict[bytes, Any] = OrderedDict()
        self._dtype = np.dtype(np.int16 if package.actions < np.iinfo(np.int16).max else np.int32)
        self._first = 0
        self._first = self._mover(package.initial(), 0)

    def initial(self, n: int) -> State:
        return (np.full((n, self.longest), -1, self._dtype),)

    def legal(self, state: State) -> Array:
        legal = [self._package.legal(self._position(each)) for each in _played(state)]
        return np.array(legal, bool).reshape(-1, self.actions)

    def play(self, state: State, action: Array) -> tuple[State, Array, Array]:
        history, n = state[0].copy(), len(action)
        over, outcome = np.zeros(n, bool), np.zeros(n, np.int8)
        for row, before in enumerate(_played(state)):
            ply = len(before)
            history[row, ply] = action[row]
            position = self._position(history[row, : ply + 1])
            if self._package.player(position) is None:
                over[row] = True
                outcome[row] = np.sign(self._package.outcome(position, self._turn(ply + 1)))
            else:
                over[row] = ply + 1 == self.longest
                self._mover(position, ply + 1)
        return (history,), over, outcome

    def planes(self, state: State) -> Array:
        seen = [self._package.planes(self._position(each), self._turn(len(each))) for each in _played(state)]
        return np.stack(seen).astype(np.float32, copy=False)

    def symmetries(self, planes: Array, policy: Array) -> list[tuple[Array, Array]]:
        """The given position: the packages do not tell symmetries."""
        return [(planes, policy)]

    def _turn(self, ply: int) -> int:
        return (self._first + ply) % 2

    def _mover(self, position: Any, ply: int) -> int:
        player = self._package.player(position)
        if ply and player != self._turn(ply):
            raise GameError(
                f"{self._package.name}: the same player moves again after ply {ply}; expected players that alternate: "
                "let the other player pass, see docs/games.md"
            )
        assert player is not None
        return player

    def _position(self, played: Array) -> Any:
        """The position after these actions; replays them from the latest position that is kept."""
        known = len(played)
        while known and played[:known].tobytes() not in self._held:
            known -= 1
        position = self._held[played[:known].tobytes()] if known else self._package.initial()
        if known:
            self._held.move_to_end(played[:known].tobytes())
        for ply in range(known, len(played)):
            position = self._package.after(position, int(played[ply]))
            self._held[played[: ply + 1].tobytes()] = position
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return position


def _played(state: State) -> list[Array]:
    """The actions of each game so far."""
    history = state[0]
    return [row[:plies] for row, plies in zip(history, (history >= 0).sum(axis=1))]


_NEEDED = (
    ("information", "PERFECT_INFORMATION", "has hidden information"),
    ("dynamics", "SEQUENTIAL", "has simultaneous moves"),
    ("chance_mode", "DETERMINISTIC", "has chance"),
    ("utility", "ZERO_SUM", "is not zero-sum"),
    ("reward_model", "TERMINAL", "has rewards before its end"),
)
_AXES = 3


def openspiel_game(name: str, longest: int | None = None, **parameters: Any) -> HistoryGame:
    """The rules of a game of OpenSpiel (extra `openspiel`)."""
    pyspiel: Any = import_extra("pyspiel", "openspiel", f"env.env_id={OPENSPIEL + name!r}")
    if name not in (known := pyspiel.registered_names()):
        raise ConfigError(f"env.env_id={OPENSPIEL + name!r}: OpenSpiel has no such game{nearest(name, known)}")
    try:
        game = pyspiel.load_game(name, parameters)
    except (pyspiel.SpielError, TypeError) as error:
        raise ConfigError(f"env.env_id={OPENSPIEL + name!r} with env.env_kwargs={parameters}: {error}") from error
    kind = game.get_type()
    wrong = [why for part, value, why in _NEEDED if getattr(kind, part).name != value]
    wrong += [f"has {game.num_players()} players"] * (game.num_players() != 2)
    wrong += ["has no observation tensor"] * (not kind.provides_observation_tensor)
    if wrong:
        raise ConfigError(
            f"env.env_id={OPENSPIEL + name!r}: expected a game of two players with perfect information, turns, no "
            f"chance and one reward at its end, but this game {' and '.join(wrong)}"
        )
    return HistoryGame(_OpenSpielGame(game), game.max_game_length() if longest is None else longest)


class _OpenSpielGame:
    """A game of OpenSpiel; positions are its states."""

    def __init__(self, game: Any) -> None:
        self.name, self.actions = f"{OPENSPIEL}{game.get_type().short_name}", int(game.num_distinct_actions())
        self._game = game
        shape = game.observation_tensor_shape()
        self._shape = (*shape, *[1] * (_AXES - len(shape))) if len(shape) <= _AXES else (int(np.prod(shape)), 1, 1)

    def initial(self) -> Any:
        return self._game.new_initial_state()

    def after(self, position: Any, action: int) -> Any:
        position = position.clone()
        position.apply_action(action)
        return position

    def player(self, position: Any) -> int | None:
        return None if position.is_terminal() else int(position.current_player())

    def legal(self, position: Any) -> Array:
        legal = np.zeros(self.actions, bool)
        legal[position.legal_actions()] = True
        return legal

    def outcome(self, position: Any, player: int) -> float:
        return float(position.returns()[player])

    def planes(self, position: Any, player: int) -> Array:
        """OpenSpiel's observation tensor, and a plane that is 1 if the second player moves: in many games, the tensor
        is the same for both players."""
        seen = np.asarray(position.observation_tensor(player), np.float32).reshape(self._shape)
        turn = np.full((1, *seen.shape[1:]), player, np.float32)
        return np.concatenate([seen, turn])


LONGEST = {"connect_four_v3": 42, "go_v5": 400, "tictactoe_v3": 9}
"""The games with perfect information, and their `longest` by default. Chess is missing, because copies of its board
take milliseconds: OpenSpiel's chess is fifteen times faster."""


def pettingzoo_game(name: str, longest: int | None = None, **parameters: Any) -> HistoryGame:
    """The rules of a game of PettingZoo's family `classic`."""
    try:
        module = import_installed(f"pettingzoo.classic.{name}")
    except ImportError as error:
        raise ConfigError(
            f"env.env_id='classic/{name}' needs {error.name or error}, which is not installed: pip install "
            "'pettingzoo[classic]'"
        ) from error
    try:
        env = module.raw_env(**parameters)
    except TypeError as error:
        raise ConfigError(f"env.env_id='classic/{name}' with env.env_kwargs={parameters}: {error}") from error
    return HistoryGame(_PettingZooGame(env, name), LONGEST[name] if longest is None else longest)


class _PettingZooGame:
    """A turn-based environment; positions are copies of it."""

    def __init__(self, env: Any, name: str) -> None:
        self.name, self._env = f"classic/{name}", env
        env.reset(seed=0)
        self.actions = int(env.action_space(env.possible_agents[0]).n)

    def initial(self) -> Any:
        return self._env

    def after(self, position: Any, action: int) -> Any:
        # `copy.deepcopy` of the environment itself would make a new one from its arguments, without its state.
        after = object.__new__(type(position))
        after.__dict__.update(copy.deepcopy(vars(position)))
        after.step(action)
        return after

    def player(self, position: Any) -> int | None:
        over = any(position.terminations.values()) or any(position.truncations.values())
        return None if over else position.possible_agents.index(position.agent_selection)

    def legal(self, position: Any) -> Array:
        if self.player(position) is None:
            return np.zeros(self.actions, bool)
        mask = position.observe(position.agent_selection)["action_mask"]
        return np.asarray(mask, bool)

    def outcome(self, position: Any, player: int) -> float:
        return float(position.rewards[position.possible_agents[player]])

    def planes(self, position: Any, player: int) -> Array:
        seen = position.observe(position.possible_agents[player])["observation"]
        return np.moveaxis(np.asarray(seen, np.float32), -1, 0)
