"""Past selves: in competitive environments the policy plays against earlier versions of itself."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data import obs_trees
from minding.engine.data.agent_axis import ALIVE
from minding.engine.errors import ChainError, CheckpointError, ConfigError, EnvError, LaneError
from minding.engine.run.pool import ModelPool
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, EnvManager, EnvStep, Factory, LaneContext, Obs, StateDict
from minding.middleware.ctx_fields import metrics_in

_START = 1000.0
"""Elo of the first past self."""
_STEP = 16.0
_MEMORY = 0.05
"""Weight of the last game in a win rate."""
_OPPONENT = "opponent"
_REPLACED = -1
_PREFIX = "past_selves."


def expected_score(rating: float, other: float) -> float:
    """Expected score of a rating against another (Elo, 1978, The Rating of Chessplayers).

    E = 1 / (1 + 10^((R_other - R) / 400))
    """
    return float(1.0 / (1.0 + 10.0 ** ((other - rating) / 400.0)))


def hard_first(win_rates: Array) -> Array:
    """Probability of each opponent in prioritized fictitious self-play (Vinyals et al., 2019,
    https://doi.org/10.1038/s41586-019-1724-z).

        P_k ~ (1 - win rate_k)^2

    An opponent that is always beaten keeps a small probability.
    """
    weights = np.maximum(1.0 - win_rates, 0.05) ** 2
    chances: Array = weights / weights.sum()
    return chances


@dataclasses.dataclass
class PastSelf:
    """A version of the policy that is in play.

    Attributes:
      version: number of the version in the pool.
      rating: its Elo, fixed at the policy's Elo at the time the version came into play.
      win_rate: win rate of the policy against it; the newest games count most.
      games: number of games played against it.
    """

    version: int
    rating: float
    win_rate: float = 0.5
    games: int = 0


class Lineup:
    """The past selves in play, each in its own place, and the arrays through which environments learn of them.

    Only the main process brings past selves into play and rates them. The arrays are sent to workers as weights are.

    Args:
      size: number of places, K.
      weights: weights of the policy, for their names, shapes and dtypes.

    Attributes:
      arrays: ``past_selves.versions``, int64 ``(K,)``, 0 where a place is free; ``past_selves.win_rates``, float64
        ``(K,)``; and the weights, as ``past_selves.<place>.<name>``.
      selves: the past selves, by place.
      rating: Elo of the policy.
    """

    def __init__(self, size: int, weights: Mapping[str, Array]) -> None:
        self.arrays: dict[str, Array] = {
            f"{_PREFIX}versions": np.zeros(size, np.int64),
            f"{_PREFIX}win_rates": np.full(size, 0.5),
            **{
                f"{_PREFIX}{k}.{name}": np.zeros(array.shape, array.dtype)
                for k in range(size)
                for name, array in weights.items()
            },
        }
        self.selves: list[PastSelf] = []
        self.rating = _START
        self._size, self._names = size, tuple(weights)

    def take(self, version: int, weights: Mapping[str, Array]) -> None:
        """Brings a version into play; if all places are taken, it replaces the version that is beaten most often."""
        if len(self.selves) < self._size:
            place = len(self.selves)
            self.selves.append(PastSelf(version, self.rating))
        else:
            place = int(np.argmax([past.win_rate for past in self.selves]))
            self.selves[place] = PastSelf(version, self.rating)
        self._show(place, weights)

    def fill(self, pool: ModelPool) -> None:
        """Reads the weights of the past selves whose places do not have them yet, as after a resume."""
        for place, past in enumerate(self.selves):
            if self.arrays[f"{_PREFIX}versions"][place] != past.version:
                self._show(place, pool.read(past.version))

    def place_of(self, version: int) -> int | None:
        """The place of a version; None if it is not in play."""
        return next((k for k, past in enumerate(self.selves) if past.version == version), None)

    def rate(self, place: int, score: float) -> None:
        """Counts a game against the past self in a place: score 1 if the policy won, 0 if it lost."""
        past = self.selves[place]
        self.rating += _STEP * (score - expected_score(self.rating, past.rating))
        past.win_rate += _MEMORY * (score - past.win_rate)
        past.games += 1
        self.arrays[f"{_PREFIX}win_rates"][place] = past.win_rate

    def state_dict(self) -> StateDict:
        """The ratings and the versions in play; the weights are in the pool."""
        return {"rating": self.rating, "selves": [dataclasses.asdict(past) for past in self.selves]}

    def load_state_dict(self, state: StateDict) -> None:
        if len(state["selves"]) > self._size:
            raise CheckpointError(
                f"the checkpoint has {len(state['selves'])} past selves in play, and Contest(size={self._size}) takes "
                "fewer: use the size that it was trained with"
            )
        self.rating = float(state["rating"])
        self.selves = [
            PastSelf(int(each["version"]), float(each["rating"]), float(each["win_rate"]), int(each["games"]))
            for each in state["selves"]
        ]
        self.arrays[f"{_PREFIX}versions"][:] = 0

    def _show(self, place: int, weights: Mapping[str, Array]) -> None:
        past = self.selves[place]
        for name in self._names:
            self.arrays[f"{_PREFIX}{place}.{name}"][...] = weights[name]
        self.arrays[f"{_PREFIX}versions"][place] = past.version
        self.arrays[f"{_PREFIX}win_rates"][place] = past.win_rate


class Contest:
    """Environments in which past selves act for some of the agents: an `EnvManager` to collect in.

    Each episode has one opponent, which is drawn in favor of those that are rarely beaten (see `hard_first`); the win
    rates are those at the beginning of the iteration. The policy sees the opponents' agents as absent (`ALIVE` is
    false), so that it does not learn from them. The info of an episode's end has the number of its opponent's version
    as ``opponent``, or -1 if another version took its place meanwhile. The return of an episode adds up both sides.
    `past_selves`, which comes before the collector, decides which versions are in play. In an asynchronous run each
    collector draws its own opponents.

    Args:
      env: the environments; their agents' axis holds both sides.
      policy: ``policy.collect_mode``.
      opponents: indices of the opponents' agents on that axis.
      size: highest number of past selves in play.
      seed: seed of the draws.

    Attributes:
      lineup: the past selves in play.

    Raises:
      ConfigError: there are no opponents, `size` is less than 1, or the policy acts with a compiled graph.
    """

    def __init__(self, env: EnvManager, policy: Any, opponents: Sequence[int], *, size: int = 8, seed: int = 0) -> None:
        if size < 1 or not len(opponents):
            raise ConfigError(f"Contest(opponents={opponents!r}, size={size}): expected agents, and at least 1")
        self.lineup = Lineup(size, policy.weights())
        self._size, self._seed = size, seed
        self._acting: Factory = policy.factory()
        self._begin(env, opponents, self.lineup.arrays, LaneContext(0, {}))

    @classmethod
    def _rebuilt(
        cls, env: Factory, acting: Factory, opponents: Sequence[int], size: int, seed: int, lane: LaneContext
    ) -> Contest:
        """The contest of a worker, with the arrays that were sent to it."""
        made = cls.__new__(cls)
        made._size, made._seed, made._acting = size, seed, acting
        made._begin(env(lane), opponents, lane.weights, lane)
        return made

    def _begin(self, env: EnvManager, opponents: Sequence[int], arrays: Mapping[str, Array], lane: LaneContext) -> None:
        self.num_envs = env.num_envs
        self._env, self._opponents = env, np.asarray(opponents, np.int64)
        self._versions, self._win_rates = arrays[f"{_PREFIX}versions"], arrays[f"{_PREFIX}win_rates"]
        self._rng = SeedStreams(self._seed).generator(f"contest.{lane.index}")
        # For each environment, the place of its opponent and the version that began the episode.
        self._playing = np.zeros(env.num_envs, np.int64)
        self._version = np.zeros(env.num_envs, np.int64)
        self._modes = [self._mode(k, arrays, lane) for k in range(self._size)]

    def _mode(self, place: int, arrays: Mapping[str, Array], lane: LaneContext) -> Any:
        """The acting mode with the weights of a place; each place has its own random stream."""
        prefix = f"{_PREFIX}{place}."
        weights = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        try:
            return self._acting(LaneContext(lane.index, weights, own_process=False, rng_stream=f"past.{place}"))
        except LaneError:
            raise ConfigError(
                "past selves act in NumPy, and this policy acts with a compiled graph: use a network that has a NumPy "
                "form, and leave policy.collect.backend at auto"
            ) from None

    # The methods of an `EnvManager`

    @property
    def resume_guarantee(self) -> str:
        return self._env.resume_guarantee

    @property
    def obs(self) -> Obs:
        return self._hidden(self._env.obs)

    @property
    def episode_steps(self) -> Array:
        return self._env.episode_steps

    def reset(self, seed: int | None = None) -> Obs:
        return self._hidden(self._env.reset(seed))

    def step(self, action: Array) -> EnvStep:
        """Steps with the policy's actions, in which past selves choose the actions of the opponents' agents."""
        obs, action = self._env.obs, np.array(action)
        self._draw(np.flatnonzero(self._env.episode_steps == 0))
        for k in np.unique(self._playing):
            rows = np.flatnonzero(self._playing == k)
            # The past self sees all environments, because its memory has a row for each of them.
            chosen = self._modes[k].forward(obs)["action"]
            action[np.ix_(rows, self._opponents)] = chosen[np.ix_(rows, self._opponents)]
        step = self._env.step(action)
        shown = self._hidden(step.obs)
        final = shown if step.next_obs is step.obs else self._hidden(step.next_obs)
        ends = [
            dataclasses.replace(end, info={**end.info, _OPPONENT: self._opponent(end.env_id)}) for end in step.episodes
        ]
        return dataclasses.replace(step, obs=shown, next_obs=final, episodes=ends)

    def play(self, action: Array) -> EnvStep:
        raise EnvError("a Contest is for collecting only: evaluate in other environments")

    def abandon(self) -> None:
        self._env.abandon()

    def close(self) -> None:
        self._env.close()

    def factory(self) -> Factory:
        env: Any = self._env
        return functools.partial(
            Contest._rebuilt, env.factory(), self._acting, self._opponents.tolist(), self._size, self._seed
        )

    def weights(self) -> dict[str, Array]:
        """Versions, win rates and weights of the past selves in play."""
        return self.lineup.arrays

    def state_dict(self) -> StateDict:
        return {
            "env": self._env.state_dict(),
            "playing": self._playing.copy(),
            "version": self._version.copy(),
            "rng": generator_state(self._rng),
            "modes": {str(k): mode.state_dict() for k, mode in enumerate(self._modes)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._env.load_state_dict(state["env"])
        self._playing[:] = state["playing"]
        self._version[:] = state["version"]
        restore_generator(self._rng, state["rng"])
        for k, mode in enumerate(self._modes):
            mode.load_state_dict(state["modes"][str(k)])

    def _draw(self, envs: Array) -> None:
        """Draws the opponents of the episodes that begin in these environments."""
        if not envs.size:
            return
        places = np.flatnonzero(self._versions)
        if not places.size:
            raise ChainError(
                "no past self is in play: put model_pool(policy, pool, freq) and then past_selves(contest, pool) "
                "before the collector"
            )
        self._playing[envs] = self._rng.choice(places, size=len(envs), p=hard_first(self._win_rates[places]))
        self._version[envs] = self._versions[self._playing[envs]]
        for mode in self._modes:
            mode.reset(envs)

    def _opponent(self, n: int) -> float:
        """The version that was the opponent of a whole episode; -1 if another version took its place meanwhile."""
        version = self._version[n]
        return float(version if version == self._versions[self._playing[n]] else _REPLACED)

    def _hidden(self, obs: Obs) -> Obs:
        """The observation, with the opponents' agents marked as absent."""
        leaves = dict(obs_trees.leaves(obs))
        alive = leaves[ALIVE].copy()
        alive[:, self._opponents] = False
        hidden: Obs = obs_trees.unflatten({**leaves, ALIVE: alive})
        return hidden


@declare()
class past_selves:
    """Brings each new version of a model pool into play as a past self of a `Contest`.

    Put it between `model_pool`, which adds the versions, and the collector. Versions in play stay in the pool.

    Reads: nothing.
    Writes: nothing.
    Config: nothing.

    Args:
      contest: the environments that the collector steps.
      pool: the pool that provides the versions.
    """

    def __init__(self, contest: Contest, pool: ModelPool) -> None:
        self._lineup, self._pool = contest.lineup, pool
        self._newest = 0

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Brings the newest version into play, if this has not happened yet."""
        self._lineup.fill(self._pool)
        if self._pool.newest > self._newest:
            self._newest = self._pool.newest
            self._lineup.take(self._newest, self._pool.read(self._newest))
            self._hold()

    def _hold(self) -> None:
        self._pool.hold(past.version for past in self._lineup.selves)

    def state_dict(self) -> StateDict:
        return {"newest": self._newest, "lineup": self._lineup.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self._newest = int(state["newest"])
        self._lineup.load_state_dict(state["lineup"])
        self._hold()


@declare(role="learn", reads=("episode_stats",), optional=("train_output",), writes=("train_output",))
class opponent_rater:
    """Rates the policy and the past selves of a `Contest` by the games that ended, and logs Elo and score.

    Put it after the trainer. The logger writes ``train/elo``, ``train/score`` and ``train/past_selves``. Games against
    a version that is no longer in play are not counted.

    Reads: episode_stats (their `opponent` and `score`); train_output if present.
    Writes: train_output (elo, score, past_selves).
    Config: nothing.

    Args:
      contest: the environments that the collector steps.
      score: declared key of info (``env.info_keys``) that gives the policy's result at the end of an episode: 1 for a
        win, 0 for a loss, 0.5 for neither.
    """

    def __init__(self, contest: Contest, score: str) -> None:
        self._lineup, self._score = contest.lineup, score

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Rates the games of one iteration."""
        scores = []
        for end in ctx.episode_stats or ():
            place = self._lineup.place_of(int(end.info.get(_OPPONENT, _REPLACED)))
            if place is not None:
                scores.append(self._score_of(end.info))
                self._lineup.rate(place, scores[-1])
        standings = {"elo": self._lineup.rating, "past_selves": float(len(self._lineup.selves))}
        mean = {"score": float(np.mean(scores))} if scores else {}
        ctx.train_output = {**metrics_in(ctx, "opponent_rater"), **standings, **mean}

    def _score_of(self, info: Mapping[str, float]) -> float:
        if self._score not in info:
            raise ConfigError(
                f"opponent_rater(score={self._score!r}): episodes report {', '.join(map(repr, info)) or 'nothing'}; "
                "declare it in env.info_keys as one number for all agents"
            )
        return info[self._score]
