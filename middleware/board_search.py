"""Shared parts of the middleware of self-play: a policy's evaluation of positions, and settings of search."""

from typing import Any

import numpy as np

from minding.engine.config.config import Config
from minding.engine.data import obs_trees
from minding.engine.data.observation import ACTION_MASK, Leaf, observation_leaves
from minding.engine.errors import ConfigError, GameError, MiddlewareError, ShapeError
from minding.engine.search.gumbel import GumbelOptions
from minding.engine.search.opponents import Options
from minding.engine.search.puct import PuctOptions
from minding.engine.types import Array, BoardGame, Obs, Predicts, State

MOST_OPENINGS = 100_000
"""Most openings that are held in memory at once."""


def check_fits(cfg: Config, game: BoardGame) -> tuple[Leaf, list[Leaf]]:
    """Refuses the rules of a game that the policy does not play."""
    spec = cfg.env.spec
    leaves = observation_leaves(spec.observation)
    seen = [leaf for leaf in leaves if not leaf.is_mask]
    shape = game.planes(game.initial(1)).shape[1:]
    name = type(game).__name__
    if len(seen) != 1 or seen[0].field.shape != shape:
        given = ", ".join(str(leaf.field.shape) for leaf in seen)
        raise ShapeError(
            f"the policy observes {given}, and the planes of {name} are {shape}: it belongs to another game"
        )
    if spec.action.n != game.actions:
        raise ShapeError(
            f"the policy has {spec.action.n} actions, and {name} has {game.actions}: it belongs to another game"
        )
    return seen[0], leaves


class Judge:
    """The evaluation of positions (`Evaluate`) that search takes from an acting mode of a policy."""

    def __init__(self, cfg: Config, policy: Predicts, game: BoardGame) -> None:
        seen, leaves = check_fits(cfg, game)
        self._policy, self._game = policy, game
        self._path = seen.path
        self._masked = any(leaf.is_mask for leaf in leaves)

    def __call__(self, state: State) -> tuple[Array, Array]:
        planes = self._game.planes(state)
        if not np.isfinite(planes).all():
            row = int(np.argwhere(~np.isfinite(planes))[0][0])
            raise GameError(f"{type(self._game).__name__}.planes: a number of game {row} is NaN or infinite")
        found = self._policy.predict(self._leaves(planes, self._game.legal(state)))
        return found["logits"], found["value"]

    def obs(self, planes: Array, legal: Array) -> Obs:
        """The observation of the policy, from planes ``(n, C, H, W)`` and legal actions ``(n, A)``."""
        obs: Obs = obs_trees.unflatten(self._leaves(planes, legal))
        return obs

    def _leaves(self, planes: Array, legal: Array) -> dict[str, Array]:
        return {self._path: planes, **({ACTION_MASK: legal} if self._masked else {})}


def judge_of(cfg: Config, policy: object, game: BoardGame, reader: str) -> Judge:
    """The `Judge` of an acting mode."""
    if not isinstance(policy, Predicts):
        raise MiddlewareError(
            f"{reader}: expected an acting mode with predict(obs), such as AlphaZero's policy.collect_mode, got a "
            f"{type(policy).__name__}"
        )
    return Judge(cfg, policy, game)


def collect_options(cfg: Config) -> Options:
    """Options of the search of self-play, which explores by noise."""
    collect: Any = cfg.policy.collect
    if collect.search == "puct":
        noise = (collect.puct.dirichlet_alpha, collect.puct.dirichlet_fraction)
        return PuctOptions(collect.simulations, collect.puct.c, *noise)
    each = collect.gumbel
    return GumbelOptions(collect.simulations, each.max_considered, each.c_visit, each.c_scale)


def eval_options(cfg: Config, simulations: int) -> Options | None:
    """Options of the same search without noise; None if `simulations` is 0."""
    collect: Any = cfg.policy.collect
    if not simulations:
        return None
    if collect.search == "puct":
        return PuctOptions(simulations, collect.puct.c)
    each = collect.gumbel
    return GumbelOptions(simulations, each.max_considered, each.c_visit, each.c_scale, gumbel_scale=0.0)


def openings(game: BoardGame, plies: int) -> State:
    """All positions after that many plies in which the game is not over, one per sequence of actions."""
    state = game.initial(1)
    for ply in range(plies):
        rows, actions = np.nonzero(game.legal(state))
        if len(rows) > MOST_OPENINGS:
            raise ConfigError(
                f"policy.eval.opening_plies={plies}: {type(game).__name__} has more than {MOST_OPENINGS:,} openings of "
                f"{ply + 1} plies; lower it to {ply} or less"
            )
        state, over, _ = game.play(tuple(part[rows] for part in state), actions)
        state = tuple(part[~over] for part in state)
    return state
