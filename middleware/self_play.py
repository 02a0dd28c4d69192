"""Self-play: the policy plays board games against itself, with tree search, and mirrored games count as well."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data import obs_trees
from minding.engine.data.observation import ACTION_MASK
from minding.engine.errors import CheckpointError, GameError
from minding.engine.process.signals import end_if_overdue
from minding.engine.search.opponents import search
from minding.engine.search.search_tree import check_outcomes
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, BoardGame, CollectMode, EpisodeEnd, Factory, Obs, State, StateDict
from minding.middleware.board_search import collect_options, judge_of
from minding.middleware.ctx_fields import episodes_in


class RunningGames:
    """The games that are played side by side, and the generator of their random numbers.

    Each worker of a lane has its own random stream; shards divide the games.

    Attributes:
      plies: plies played so far in each game, int64 ``(N,)``.
    """

    def __init__(self, game: BoardGame, num_envs: int, seed: int, worker: int = 0) -> None:
        self._game, self._seed, self.num_envs = game, seed, num_envs
        self.rng = SeedStreams(seed).generator(f"self_play.{worker}")
        self.state: State = game.initial(num_envs)
        self.plies = np.zeros(num_envs, np.int64)
        shape = (game.longest, num_envs)
        self.states = tuple(np.zeros((*shape, *part.shape[1:]), part.dtype) for part in self.state)
        self.policies = np.zeros((*shape, game.actions), np.float32)
        self.actions, self.values = np.zeros(shape, np.int64), np.zeros(shape, np.float32)

    def factory(self) -> Factory:
        game, num_envs, seed = self._game, self.num_envs, self._seed
        return lambda lane: RunningGames(game, lane.share(num_envs), seed, lane.index)

    def weights(self) -> dict[str, Array]:
        """An empty dict: games have no weights."""
        return {}

    def state_dict(self) -> StateDict:
        return {
            "rng": generator_state(self.rng),
            "plies": self.plies.copy(),
            "position": {str(k): part.copy() for k, part in enumerate(self.state)},
            "states": {str(k): part.copy() for k, part in enumerate(self.states)},
            "policies": self.policies.copy(),
            "values": self.values.copy(),
            "actions": self.actions.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        count = len(state["plies"])
        if count != self.num_envs:
            raise CheckpointError(f"the saved state has {count} games, but this run has {self.num_envs}")
        restore_generator(self.rng, state["rng"])
        self.state = tuple(np.array(state["position"][str(k)]) for k in range(len(self.state)))
        pairs: list[tuple[Array, Array]] = [
            (self.plies, state["plies"]),
            (self.policies, state["policies"]),
            (self.values, state["values"]),
            (self.actions, state["actions"]),
        ]
        pairs += [(part, state["states"][str(k)]) for k, part in enumerate(self.states)]
        for here, saved in pairs:
            here[...] = saved


@declare(
    role="collect", reads=("env_step", "env_episode"), writes=("episodes", "episode_stats", "env_step", "env_episode")
)
class SelfPlayCollector:
    """Plays N games against itself, with one search per ply; games continue across iterations.

    In the first `sample_plies` plies of a game actions are drawn from the search's policy; later actions are its best.
    Games that have not ended are part of checkpoints.

    Reads: env_step, env_episode.
    Writes: episodes (the games that ended: dicts of arrays ``(L, ...)`` over their plies: `obs`, the policy's
      observations; `policy`, the search's policy, ``(L, A)``; `action`; `outcome`, the outcome of the game for the
      player to move, or its mean with the search's value by `value_share`), episode_stats (the outcome for the first
      player as return), env_step (plies), env_episode (games).
    Config: policy.collect.{n_sample, search, simulations, sample_plies, value_share, puct, gumbel},
      env.collector_env_num.

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
        self._sample_plies, self._value_share = int(collect.sample_plies), float(collect.value_share)
        count = int(cfg.env.collector_env_num)
        self._steps = max(1, collect.n_sample // count)
        self._running = RunningGames(game, count, cfg.seed)

    def __call__(self, ctx: OnlineRLContext) -> None:
        ctx.episodes, ctx.episode_stats = [], []
        for _ in range(self._steps):
            end_if_overdue()
            for n, outcome in self._play_ply():
                ctx.episodes.append(self._episode(n, outcome))
                plies = int(self._running.plies[n])
                ctx.episode_stats.append(EpisodeEnd(n, outcome if plies % 2 == 0 else -outcome, plies))
                self._running.plies[n] = 0
        ctx.env_step += self._steps * self._running.num_envs
        ctx.env_episode += len(ctx.episodes)

    def _play_ply(self) -> Sequence[tuple[int, float]]:
        """Plays one ply in each game; returns the games that ended, with the outcome for the next player to move."""
        games = self._running
        found = search(self._game, games.state, self._judge, self._options, games.rng)
        action = self._chosen(found.policy, found.best)
        here = (games.plies, np.arange(games.num_envs))
        for stored, part in zip(games.states, games.state):
            stored[here] = part
        games.policies[here], games.values[here], games.actions[here] = found.policy, found.value, action
        state, over, outcome = self._game.play(games.state, action)
        check_outcomes(self._game, over, outcome)
        games.plies += 1
        ended = np.flatnonzero(over)
        endless = np.flatnonzero(~over & (games.plies >= self._game.longest))
        if endless.size:
            raise GameError(
                f"{type(self._game).__name__}: game {endless[0]} is not over after longest={self._game.longest} plies"
            )
        if ended.size:
            state = tuple(part.copy() for part in state)
            for part, fresh in zip(state, self._game.initial(len(ended))):
                part[ended] = fresh
        games.state = state
        return [(n, float(outcome[n])) for n in ended.tolist()]

    def _chosen(self, policy: Array, best: Array) -> Array:
        """The actions in all games: drawn in early plies, the best in later ones."""
        games = self._running
        early = games.plies < self._sample_plies
        if not early.any():
            return best
        reached = policy.cumsum(axis=1)
        drawn = (reached <= games.rng.random((games.num_envs, 1)) * reached[:, -1:]).sum(axis=1)
        return np.where(early, drawn, best)

    def _episode(self, n: int, outcome: float) -> dict[str, Obs]:
        """The game that ended in row n."""
        games = self._running
        length, share = int(games.plies[n]), self._value_share
        state: State = tuple(stored[:length, n] for stored in games.states)
        sign = np.where((length - np.arange(length)) % 2, -1.0, 1.0)
        return {
            "obs": self._judge.obs(self._game.planes(state), self._game.legal(state)),
            "policy": games.policies[:length, n].copy(),
            "action": games.actions[:length, n].copy(),
            "outcome": ((1.0 - share) * sign * outcome + share * games.values[:length, n]).astype(np.float32),
        }

    def state_dict(self) -> StateDict:
        return self._running.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self._running.load_state_dict(state)


@declare(role="learn", reads=("episodes",), writes=("episodes",))
class symmetry_enhancer:
    """Adds the equivalent forms of each game: its positions, masks and policies under the rules' `symmetries`.

    Reads: episodes, as `SelfPlayCollector` writes them.
    Writes: episodes (each followed by its other forms; they have no `action`).

    Args:
      game: the rules.
    """

    def __init__(self, game: BoardGame) -> None:
        self._game = game

    def __call__(self, ctx: OnlineRLContext) -> None:
        games: list[dict[str, Any]] = episodes_in(ctx, "symmetry_enhancer")
        ctx.episodes = [form for game in games for form in (game, *self._others(game))]

    def _others(self, episode: dict[str, Any]) -> list[dict[str, Any]]:
        leaves = dict(obs_trees.leaves(episode["obs"]))
        path = next(name for name in leaves if name != ACTION_MASK)
        planes, policy = leaves[path], episode["policy"]
        forms = self._game.symmetries(planes, policy)[1:]
        masks: list[Array | None] = [None] * len(forms)
        if ACTION_MASK in leaves:
            legal = leaves[ACTION_MASK].astype(np.float32)
            masks = [mask > 0 for _, mask in self._game.symmetries(planes, legal)[1:]]
        others = []
        for (seen, played), mask in zip(forms, masks):
            obs = {path: seen} if mask is None else {path: seen, ACTION_MASK: mask}
            others.append({"obs": obs_trees.unflatten(obs), "policy": played, "outcome": episode["outcome"]})
        return others
