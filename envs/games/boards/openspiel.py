"""Games of OpenSpiel (Lanctot et al., 2019, https://arxiv.org/abs/1908.09453) as rules of board games."""

from typing import Any

import numpy as np

from minding.engine.config.named import OPENSPIEL
from minding.engine.errors import ConfigError, nearest
from minding.engine.process.packages import import_extra
from minding.engine.types import Array
from minding.envs.games.boards.histories import HistoryGame

_NEEDED = (
    ("information", "PERFECT_INFORMATION", "has hidden information"),
    ("dynamics", "SEQUENTIAL", "has simultaneous moves"),
    ("chance_mode", "DETERMINISTIC", "has chance"),
    ("utility", "ZERO_SUM", "is not zero-sum"),
    ("reward_model", "TERMINAL", "has rewards before its end"),
)
_AXES = 3


def openspiel_game(name: str, longest: int | None = None, **parameters: Any) -> HistoryGame:
    """The rules of a game of OpenSpiel (extra `openspiel`).

    Args:
      name: the game's short name, such as ``tic_tac_toe``.
      longest: most plies, after which the game is a draw; None stands for OpenSpiel's own limit.
      parameters: parameters of the game, such as ``board_size=5``.
    Raises:
      ConfigError: the game does not exist, has other parameters, or is not a game of two players with perfect
        information, turns, no chance and one reward at its end.
      MissingExtraError: OpenSpiel is not installed.
    """
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
    return HistoryGame(_Game(game), game.max_game_length() if longest is None else longest)


class _Game:
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
