"""Self-play: the policy plays board games against itself, with tree search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.errors import GameError
from minding.engine.search.player import search
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, BoardGame, CollectMode, EpisodeEnd, Factory, LaneContext, Obs, State, StateDict
from minding.middleware.boards import collect_options, judge_of


class SelfPlayStream:
    """The random numbers of self-play, which each worker of a lane draws from a stream of its own.

    Args:
      seed: of the run.
      worker: number of the worker.
    """

    def __init__(self, seed: int, worker: int = 0) -> None:
        self.seed = seed
        self.rng = SeedStreams(seed).generator(f"self_play.{worker}")

    def factory(self) -> Factory:
        return _StreamFactory(self.seed)

    def weights(self) -> dict[str, Array]:
        """None."""
        return {}


class _StreamFactory:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, lane: LaneContext) -> SelfPlayStream:
        return SelfPlayStream(self._seed, lane.index)


@declare(
    role="collect",
    reads=("env_step", "env_episode"),
    writes=("episodes", "episode_stats", "env_step", "env_episode"),
)
class SelfPlayCollector:
    """Plays N games against itself, a search per ply; games go on across iterations, and a new one follows each.

    An action of the first `sample_plies` plies of a game is drawn from the search's policy, any later one is its best.
    Games that have not ended are part of checkpoints.

    Reads: env_step, env_episode.
    Writes: episodes (the games that ended: dicts of arrays ``(L, ...)`` over their plies, `obs`, what the policy
      observes; `policy`, what the search made of it, ``(L, A)``; `action`; `outcome`, the game's for the player to
      move), episode_stats (the outcome for the first player as return), env_step (plies), env_episode (games).
    Config: policy.collect.{n_sample, search, simulations, sample_plies, puct, gumbel}, env.collector_env_num.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.collect_mode``, with `predict`.
      game: the rules.
    """

    def __init__(self, cfg: Config, policy: CollectMode, game: BoardGame) -> None:
        collect: Any = cfg.policy.collect
        self._game = game
        self._judge = judge_of(cfg, policy, game, "SelfPlayCollector")
        self._options = collect_options(cfg)
        self._sample_plies = int(collect.sample_plies)
        self._count = int(cfg.env.collector_env_num)
        self._steps = max(1, collect.n_sample // self._count)
        self._stream = SelfPlayStream(cfg.seed)
        self._rows = np.arange(self._count)
        self._state = game.initial(self._count)
        # Of the running games: plies so far, and by ply the positions, searched policies and actions.
        self._plies = np.zeros(self._count, np.int64)
        shape = (game.longest, self._count)
        self._states = tuple(np.zeros((*shape, *part.shape[1:]), part.dtype) for part in self._state)
        self._policies = np.zeros((*shape, game.actions), np.float32)
        self._actions = np.zeros(shape, np.int64)

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Plays the plies of one iteration."""
        ctx.episodes, ctx.episode_stats = [], []
        for _ in range(self._steps):
            for n, outcome in self._play_ply():
                ctx.episodes.append(self._episode(n, outcome))
                first = outcome if self._plies[n] % 2 == 0 else -outcome
                ctx.episode_stats.append(EpisodeEnd(n, first, int(self._plies[n])))
                self._plies[n] = 0
        ctx.env_step += self._steps * self._count
        ctx.env_episode += len(ctx.episodes)

    def _play_ply(self) -> Sequence[tuple[int, float]]:
        """One ply in each game; returns the games that ended, with the outcome for the player who would move next."""
        found = search(self._game, self._state, self._judge, self._options, self._stream.rng)
        action = self._chosen(found.policy, found.best)
        here = (self._plies, self._rows)
        for stored, part in zip(self._states, self._state):
            stored[here] = part
        self._policies[here], self._actions[here] = found.policy, action
        state, over, outcome = self._game.play(self._state, action)
        self._plies += 1
        ended = np.flatnonzero(over)
        endless = np.flatnonzero(~over & (self._plies >= self._game.longest))
        if endless.size:
            raise GameError(
                f"{type(self._game).__name__}: game {endless[0]} runs after longest={self._game.longest} plies"
            )
        if ended.size:
            state = tuple(part.copy() for part in state)
            for part, fresh in zip(state, self._game.initial(len(ended))):
                part[ended] = fresh
        self._state = state
        return [(n, float(outcome[n])) for n in ended.tolist()]

    def _chosen(self, policy: Array, best: Array) -> Array:
        """The actions of all games."""
        early = self._plies < self._sample_plies
        if not early.any():
            return best
        reached = policy.cumsum(axis=1)
        drawn = (reached <= self._stream.rng.random((self._count, 1)) * reached[:, -1:]).sum(axis=1)
        return np.where(early, drawn, best)

    def _episode(self, n: int, outcome: float) -> dict[str, Obs]:
        """The game that ended in row n."""
        length = int(self._plies[n])
        state: State = tuple(stored[:length, n] for stored in self._states)
        sign = np.where((length - np.arange(length)) % 2, -1.0, 1.0)
        return {
            "obs": self._judge.obs(self._game.planes(state), self._game.legal(state)),
            "policy": self._policies[:length, n].copy(),
            "action": self._actions[:length, n].copy(),
            "outcome": (sign * outcome).astype(np.float32),
        }

    def state_dict(self) -> StateDict:
        return {
            "rng": generator_state(self._stream.rng),
            "plies": self._plies.copy(),
            "position": {str(k): part.copy() for k, part in enumerate(self._state)},
            "states": {str(k): part.copy() for k, part in enumerate(self._states)},
            "policies": self._policies.copy(),
            "actions": self._actions.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        restore_generator(self._stream.rng, state["rng"])
        self._state = tuple(np.array(state["position"][str(k)]) for k in range(len(self._state)))
        pairs: list[tuple[Array, Array]] = [
            (self._plies, state["plies"]),
            (self._policies, state["policies"]),
            (self._actions, state["actions"]),
        ]
        pairs += [(part, state["states"][str(k)]) for k, part in enumerate(self._states)]
        for here, saved in pairs:
            here[...] = saved
