"""Turn-based games of PettingZoo (Terry et al., 2021, https://arxiv.org/abs/2009.14471) as rules of board games."""

import copy
from typing import Any

import numpy as np

from minding.engine.errors import ConfigError
from minding.engine.process.packages import import_installed
from minding.engine.types import Array
from minding.envs.games.boards.histories import HistoryGame

LONGEST = {"connect_four_v3": 42, "go_v5": 400, "tictactoe_v3": 9}
"""The games with perfect information, and their `longest` by default. Chess is missing, because copies of its board
take milliseconds: OpenSpiel's chess is fifteen times faster."""


def pettingzoo_game(name: str, longest: int | None = None, **parameters: Any) -> HistoryGame:
    """The rules of a game of PettingZoo's family `classic`.

    Args:
      name: the module's name, one of `LONGEST`.
      longest: most plies, after which the game is a draw; None stands for the number in `LONGEST`.
      parameters: keyword arguments of the game, such as ``board_size=9``.
    Raises:
      ConfigError: a package that the game needs is not installed, or the parameters do not fit.
    """
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
    return HistoryGame(_Game(env, name), LONGEST[name] if longest is None else longest)


class _Game:
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
