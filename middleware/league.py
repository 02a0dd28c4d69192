"""A league: in competitive environments the policy plays against earlier versions of itself, its past selves."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data import obs_trees
from minding.engine.data.actions import ActionAdapter, random_actions
from minding.engine.data.agent_axis import ALIVE
from minding.engine.data.observation import ACTION_MASK
from minding.engine.errors import ChainError, CheckpointError, ConfigError, EnvError, LaneError
from minding.engine.run.pool import ModelPool
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, EnvManager, EnvStep, EpisodeEnd, Factory, LaneContext, Obs, StateDict
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
    """A version of the policy that is in play."""

    version: int
    rating: float
    win_rate: float = 0.5
    games: int = 0


class Places:
    """The places of a league as environments see them: arrays that are sent to workers as weights are.

    Attributes:
      arrays: ``past_selves.versions``, int64 ``(K,)``, 0 where a place is free; ``past_selves.win_rates``, float64
        ``(K,)``; and the weights, as ``past_selves.<place>.<name>``.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.versions, self.win_rates = arrays[f"{_PREFIX}versions"], arrays[f"{_PREFIX}win_rates"]

    @classmethod
    def empty(cls, size: int, weights: Mapping[str, Array]) -> Places:
        """Free places for weights of these names, shapes and dtypes."""
        names = {f"{_PREFIX}{k}.{name}": array for k in range(size) for name, array in weights.items()}
        return cls(
            {
                f"{_PREFIX}versions": np.zeros(size, np.int64),
                f"{_PREFIX}win_rates": np.full(size, 0.5),
                **{name: np.zeros(array.shape, array.dtype) for name, array in names.items()},
            }
        )

    def weights(self, place: int) -> dict[str, Array]:
        """The weights in a place, by name."""
        prefix = f"{_PREFIX}{place}."
        return {name.removeprefix(prefix): x for name, x in self.arrays.items() if name.startswith(prefix)}


class League:
    """The policy and the past selves in play, each in its own place, with their ratings."""

    def __init__(self, pool: ModelPool, policy: Any, size: int = 8) -> None:
        if size < 1:
            raise ConfigError(f"League(size={size}): expected at least 1")
        self.selves: list[PastSelf] = []
        self.rating = _START
        self.places = Places.empty(size, policy.weights())
        self._pool, self._acting, self._size = pool, policy.factory(), size
        self._newest = 0

    def environments(self, env: EnvManager, opponents: Sequence[int], seed: int = 0) -> LeagueEnv:
        """Environments in which past selves act for the agents with these indices; see `LeagueEnv`."""
        return LeagueEnv(env, self.places, self._acting, opponents, seed)

    def update(self) -> None:
        """Brings the newest version of the pool into play, if this has not happened yet."""
        for place, past in enumerate(self.selves):
            # After a resume.
            if self.places.versions[place] != past.version:
                self._show(place)
        if self._pool.newest > self._newest:
            self._newest = self._pool.newest
            self._take(self._newest)

    def plays(self, version: int) -> bool:
        """Whether a version is in play."""
        return any(past.version == version for past in self.selves)

    def rate(self, version: int, score: float) -> None:
        """Counts a game against a version that is in play: score 1 if the policy won, 0 if it lost."""
        place, past = next((k, past) for k, past in enumerate(self.selves) if past.version == version)
        self.rating += _STEP * (score - expected_score(self.rating, past.rating))
        past.win_rate += _MEMORY * (score - past.win_rate)
        past.games += 1
        self.places.win_rates[place] = past.win_rate

    def state_dict(self) -> StateDict:
        """The ratings and the versions in play; the weights are in the pool."""
        selves = [dataclasses.asdict(past) for past in self.selves]
        return {"newest": self._newest, "rating": self.rating, "selves": selves}

    def load_state_dict(self, state: StateDict) -> None:
        if len(state["selves"]) > self._size:
            raise CheckpointError(
                f"the checkpoint has {len(state['selves'])} past selves in play, and League(size={self._size}) takes "
                "fewer: use the size that it was trained with"
            )
        self._newest, self.rating = int(state["newest"]), float(state["rating"])
        self.selves = [
            PastSelf(int(each["version"]), float(each["rating"]), float(each["win_rate"]), int(each["games"]))
            for each in state["selves"]
        ]
        self.places.versions[:] = 0
        self._hold()

    def _take(self, version: int) -> None:
        """Brings a version into play; if all places are taken, it replaces the version that is beaten most often."""
        if len(self.selves) < self._size:
            self.selves.append(PastSelf(version, self.rating))
            self._show(len(self.selves) - 1)
        else:
            place = int(np.argmax([past.win_rate for past in self.selves]))
            self.selves[place] = PastSelf(version, self.rating)
            self._show(place)
        self._hold()

    def _show(self, place: int) -> None:
        past = self.selves[place]
        read = self._pool.read(past.version)
        for name, array in self.places.weights(place).items():
            array[...] = read[name]
        self.places.versions[place], self.places.win_rates[place] = past.version, past.win_rate

    def _hold(self) -> None:
        self._pool.hold(past.version for past in self.selves)


class _OneSided:
    """Environments in which others act for the agents of one side, which the policy sees as absent (`ALIVE` is
    false)."""

    def __init__(self, env: EnvManager, opponents: Sequence[int]) -> None:
        if not len(opponents):
            raise ConfigError(f"opponents={opponents!r}: expected the indices of the agents of one side")
        self.num_envs = env.num_envs
        self._env = env
        self._opponents = np.asarray(opponents, np.int64)

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

    def abandon(self) -> None:
        self._env.abandon()

    def close(self) -> None:
        self._env.close()

    def _hidden(self, obs: Obs) -> Obs:
        """The observation, with the opponents' agents marked as absent."""
        leaves = dict(obs_trees.leaves(obs))
        alive = leaves[ALIVE].copy()
        alive[:, self._opponents] = False
        hidden: Obs = obs_trees.unflatten({**leaves, ALIVE: alive})
        return hidden

    def _shown(self, step: EnvStep, **changes: Any) -> EnvStep:
        """The step as the policy sees it: returns are those of its own side, unless all agents have one reward."""
        shown = self._hidden(step.obs)
        final = shown if step.next_obs is step.obs else self._hidden(step.next_obs)
        ends = [self._of_own_side(end) for end in step.episodes]
        return dataclasses.replace(step, obs=shown, next_obs=final, episodes=ends, **changes)

    def _of_own_side(self, end: EpisodeEnd) -> EpisodeEnd:
        names = [name for name in end.info if name.startswith("return.")]
        others = {names[m]: end.info[names[m]] for m in self._opponents} if names else {}
        info = {name: value for name, value in end.info.items() if name not in others}
        return dataclasses.replace(end, episode_return=end.episode_return - sum(others.values()), info=info)


class LeagueEnv(_OneSided):
    """Environments in which past selves act for some of the agents: an `EnvManager` to collect in.

    Each episode has one opponent, which is drawn in favor of those that are rarely beaten (see `hard_first`); the win
    rates are those at the beginning of the iteration. The policy does not learn from the opponents' agents. The info of
    an episode's end has the number of its opponent's version as ``opponent``, or -1 if another version took its place
    meanwhile. In an asynchronous run each collector draws its own opponents.
    """

    def __init__(
        self,
        env: EnvManager,
        places: Places,
        acting: Factory,
        opponents: Sequence[int],
        seed: int,
        lane: LaneContext | None = None,
    ) -> None:
        super().__init__(env, opponents)
        lane = LaneContext(0, {}) if lane is None else lane
        self._places, self._acting, self._seed = places, acting, seed
        # The name of the stream decides the draws.
        self._rng = SeedStreams(seed).generator(f"contest.{lane.index}")
        # For each environment, the place of its opponent and the version that began the episode.
        self._playing = np.zeros(env.num_envs, np.int64)
        self._version = np.zeros(env.num_envs, np.int64)
        self._modes = [self._mode(k, lane) for k in range(len(places.versions))]

    @classmethod
    def _in_lane(
        cls, env: Factory, acting: Factory, opponents: Sequence[int], seed: int, lane: LaneContext
    ) -> LeagueEnv:
        return cls(env(lane), Places(lane.weights), acting, opponents, seed, lane)

    def _mode(self, place: int, lane: LaneContext) -> Any:
        """The acting mode with the weights of a place; each place has its own random stream."""
        weights = self._places.weights(place)
        try:
            return self._acting(LaneContext(lane.index, weights, own_process=False, rng_stream=f"past.{place}"))
        except LaneError:
            raise ConfigError(
                "past selves act in NumPy, and this policy acts with a compiled graph: use a network that has a NumPy "
                "form, and leave policy.collect.backend at auto"
            ) from None

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
        ends = [
            dataclasses.replace(end, info={**end.info, _OPPONENT: self._opponent(end.env_id)}) for end in step.episodes
        ]
        return self._shown(dataclasses.replace(step, episodes=ends))

    def play(self, action: Array) -> EnvStep:
        raise EnvError("a LeagueEnv is for collecting only: evaluate in other environments")

    def factory(self) -> Factory:
        env: Any = self._env
        return functools.partial(LeagueEnv._in_lane, env.factory(), self._acting, self._opponents.tolist(), self._seed)

    def weights(self) -> Mapping[str, Array]:
        """Versions, win rates and weights of the past selves in play."""
        return self._places.arrays

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
        versions = self._places.versions
        places = np.flatnonzero(versions)
        if not places.size:
            raise ChainError(
                "no past self is in play: put model_pool(policy, pool, freq) and then past_selves(league) "
                "before the collector"
            )
        self._playing[envs] = self._rng.choice(places, size=len(envs), p=hard_first(self._places.win_rates[places]))
        self._version[envs] = versions[self._playing[envs]]
        for mode in self._modes:
            mode.reset(envs)

    def _opponent(self, n: int) -> float:
        """The version that was the opponent of a whole episode; -1 if another version took its place meanwhile."""
        version = self._version[n]
        return float(version if version == self._places.versions[self._playing[n]] else _REPLACED)


class RandomOpponents(_OneSided):
    """Environments in which the agents of the other side act at random: an `EnvManager` to evaluate in."""

    def __init__(self, env: EnvManager, spec: Mapping[str, Any], opponents: Sequence[int], seed: int) -> None:
        super().__init__(env, opponents)
        self._spec, self._seed, names = spec, seed, spec["agents"]["names"]
        self._lead, self._adapter = (env.num_envs, len(names)), ActionAdapter(spec["env_action"], len(names))
        self._rng = SeedStreams(seed).generator("random_opponents")

    def step(self, action: Array) -> EnvStep:
        raise EnvError("RandomOpponents are for evaluation only: collect in other environments")

    def play(self, action: Array) -> EnvStep:
        """Steps with the policy's actions, and random ones of the opponents' agents."""
        mask, action = obs_trees.named(self._env.obs).get(ACTION_MASK), np.array(action)
        drawn = self._adapter(random_actions(self._spec["action"], self._lead, self._rng, mask))
        action[:, self._opponents] = drawn[:, self._opponents]
        step = self._env.play(action)
        reward = step.reward.copy()
        if reward.ndim > 1:
            reward[:, self._opponents] = 0.0
        return self._shown(step, reward=reward)

    def factory(self) -> Factory:
        env: Any = self._env
        return functools.partial(
            RandomOpponents._in_lane, env.factory(), self._spec, self._opponents.tolist(), self._seed
        )

    @classmethod
    def _in_lane(
        cls, env: Factory, spec: Mapping[str, Any], opponents: Sequence[int], seed: int, lane: LaneContext
    ) -> RandomOpponents:
        return cls(env(lane), spec, opponents, seed)

    def weights(self) -> Mapping[str, Array]:
        return {}

    def state_dict(self) -> StateDict:
        return {"env": self._env.state_dict(), "rng": generator_state(self._rng)}

    def load_state_dict(self, state: StateDict) -> None:
        self._env.load_state_dict(state["env"])
        restore_generator(self._rng, state["rng"])


@declare()
class past_selves:
    """Brings each new version of a league's pool into play as a past self.

    Put it between `model_pool`, which adds the versions, and the collector.

    Args:
      league: the league whose environments the collector steps.
    """

    def __init__(self, league: League) -> None:
        self._league = league

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Brings the newest version into play, if this has not happened yet."""
        self._league.update()

    def state_dict(self) -> StateDict:
        return self._league.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self._league.load_state_dict(state)


@declare(role="learn", reads=("episode_stats",), optional=("train_output",), writes=("train_output",))
class opponent_rater:
    """Rates the policy and the past selves of a `League` by the games that ended, and logs Elo and score.

    Put it after the trainer. The logger writes ``train/elo``, ``train/score`` and ``train/past_selves``. Games against
    a version that is no longer in play are not counted.

    Reads: episode_stats (their `opponent` and `score`); train_output if present.
    Writes: train_output (elo, score, past_selves).

    Args:
      league: the league whose environments the collector steps.
      score: declared key of info (``env.info_keys``) that gives the policy's result at the end of an episode: 1 for a
        win, 0 for a loss, 0.5 for neither.
    """

    def __init__(self, league: League, score: str) -> None:
        self._league, self._score = league, score

    def __call__(self, ctx: OnlineRLContext) -> None:
        scores = []
        for end in ctx.episode_stats or ():
            version = int(end.info.get(_OPPONENT, _REPLACED))
            if self._league.plays(version):
                scores.append(self._score_of(end.info))
                self._league.rate(version, scores[-1])
        standings = {"elo": self._league.rating, "past_selves": float(len(self._league.selves))}
        mean = {"score": float(np.mean(scores))} if scores else {}
        ctx.train_output = {**metrics_in(ctx, "opponent_rater"), **standings, **mean}

    def _score_of(self, info: Mapping[str, float]) -> float:
        if self._score not in info:
            raise ConfigError(
                f"opponent_rater(score={self._score!r}): episodes report {', '.join(map(repr, info)) or 'nothing'}; "
                "declare it in env.info_keys as one number for all agents"
            )
        return info[self._score]
