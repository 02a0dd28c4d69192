"""Past selves: in competitive environments the policy plays against what it was before."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data import trees
from minding.engine.data.agents import ALIVE
from minding.engine.errors import ConfigError, EnvError
from minding.engine.seeding import generator_state, restore_generator
from minding.engine.types import Array, EnvManager, EnvStep, Factory, LaneContext, Obs, StateDict
from minding.middleware.inputs import metrics_in

_START = 1000.0
"""Elo of the first past self."""
_STEP = 16.0
_MEMORY = 0.05
"""Share of the last game in a win rate."""


def expected_score(rating: float, other: float) -> float:
    """Score that a rating lets expect against another (Elo, 1978, The Rating of Chessplayers).

    E = 1 / (1 + 10^((R_other - R) / 400))
    """
    return float(1.0 / (1.0 + 10.0 ** ((other - rating) / 400.0)))


def hard_first(win_rates: Array) -> Array:
    """Probability of each opponent in prioritized fictitious self-play (Vinyals et al., 2019,
    https://doi.org/10.1038/s41586-019-1724-z).

        P_k ~ (1 - win rate_k)^2

    One that is always beaten keeps a small chance.
    """
    weights = np.maximum(1.0 - win_rates, 0.05) ** 2
    chances: Array = weights / weights.sum()
    return chances


@dataclasses.dataclass
class PastSelf:
    """A policy as it was.

    Attributes:
      weights: its parameters by name.
      rating: its Elo, that of the policy when it was kept.
      win_rate: of the policy against it, the newest games counting most.
      games: that were played against it.
    """

    weights: dict[str, Array]
    rating: float
    win_rate: float = 0.5
    games: int = 0


class Contest:
    """Environments in which past selves act for some of the agents: an `EnvManager` to collect in.

    Each episode has one opponent, drawn by how rarely it is beaten (see `hard_first`). To the policy the opponents'
    agents are not there (`ALIVE` is false), so that nothing is learned of them. The policy as it is now is the first
    past self; where there are too many, the one goes that is beaten most often. Returns of episodes are those of both
    sides together.

    Args:
      env: the environments; their agents' axis holds both sides.
      policy: ``policy.collect_mode``.
      opponents: places of the opponents' agents on that axis.
      score: declared key of info (``env.info_keys``) that tells at the end of an episode how it ended for the policy: 1
        won, 0 lost, 0.5 neither.
      size: the most past selves.
      seed: of the draws, and of how past selves act.
    """

    def __init__(
        self, env: EnvManager, policy: Any, opponents: Sequence[int], score: str, *, size: int = 8, seed: int = 0
    ) -> None:
        if size < 1 or not len(opponents):
            raise ConfigError(f"Contest(opponents={opponents!r}, size={size}): expected agents, and at least 1")
        self.num_envs = env.num_envs
        self.rating = _START
        self.selves: list[PastSelf] = []
        self._env, self._policy, self._score, self._size = env, policy, score, size
        self._opponents = np.asarray(opponents, np.int64)
        self._rng = np.random.default_rng(seed)
        self._playing = np.zeros(env.num_envs, np.int64)
        # Games against one that was replaced meanwhile say nothing of either.
        self._rated = np.ones(env.num_envs, bool)
        self._factory = policy.factory()
        # One acting mode for each place in the pool, and the arrays that it acts with.
        self._weights: list[dict[str, Array]] = []
        self._modes: list[Any] = []
        self._scores: list[float] = []
        self.keep()

    def keep(self) -> None:
        """Adds the policy as it is now."""
        current = {name: np.array(array) for name, array in self._policy.weights().items()}
        if len(self.selves) == self._size:
            gone = int(np.argmax([past.win_rate for past in self.selves]))
            self.selves[gone] = PastSelf(current, self.rating)
            self._adopt(gone)
            self._rated[self._playing == gone] = False
            return
        self.selves.append(PastSelf(current, self.rating))
        self._adopt(len(self.selves) - 1)

    def take_metrics(self) -> dict[str, float]:
        """Elo of the policy, its mean score in the games since the last call, and the number of past selves."""
        scores, self._scores = self._scores, []
        told = {"elo": self.rating, "past_selves": float(len(self.selves))}
        return {**told, "score": float(np.mean(scores))} if scores else told

    # What an `EnvManager` does.

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
        obs = self._env.reset(seed)
        self._draw(np.arange(self.num_envs))
        return self._hidden(obs)

    def step(self, action: Array) -> EnvStep:
        """Steps with the policy's actions, and those of the past selves in place of the opponents'."""
        obs, action = self._env.obs, np.array(action)
        for k in np.unique(self._playing):
            rows = np.flatnonzero(self._playing == k)
            # All environments are shown: what is remembered of each has its place.
            chosen = self._modes[k].forward(obs)["action"]
            action[np.ix_(rows, self._opponents)] = chosen[np.ix_(rows, self._opponents)]
        step = self._env.step(action)
        for end in step.episodes:
            if self._rated[end.env_id]:
                self._rate(int(self._playing[end.env_id]), self._told(end.info))
        begun = step.begun()
        if begun is not None:
            self._draw(begun)
        shown = self._hidden(step.obs)
        final = shown if step.next_obs is step.obs else self._hidden(step.next_obs)
        return dataclasses.replace(step, obs=shown, next_obs=final)

    def play(self, action: Array) -> EnvStep:
        raise EnvError("a Contest is for collecting: evaluate in environments of your own")

    def abandon(self) -> None:
        self._env.abandon()

    def close(self) -> None:
        self._env.close()

    def factory(self) -> Factory:
        raise EnvError("past selves play in this process: start the task without async_mode")

    def weights(self) -> dict[str, Array]:
        """None: it is not sent to other processes."""
        return {}

    def state_dict(self) -> StateDict:
        return {
            "env": self._env.state_dict(),
            "rating": self.rating,
            "playing": self._playing.copy(),
            "rated": self._rated.copy(),
            "rng": generator_state(self._rng),
            "scores": list(self._scores),
            "selves": {
                str(k): {**dataclasses.asdict(past), "mode": mode.state_dict()}
                for k, (past, mode) in enumerate(zip(self.selves, self._modes))
            },
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._env.load_state_dict(state["env"])
        self.rating, self._scores = float(state["rating"]), [float(score) for score in state["scores"]]
        self._playing[:] = state["playing"]
        self._rated[:] = state["rated"]
        restore_generator(self._rng, state["rng"])
        self.selves, self._modes, self._weights = [], [], []
        for k in range(len(state["selves"])):
            saved = state["selves"][str(k)]
            weights = {name: np.array(array) for name, array in saved["weights"].items()}
            self.selves.append(PastSelf(weights, float(saved["rating"]), float(saved["win_rate"]), int(saved["games"])))
            self._adopt(k)
            self._modes[k].load_state_dict(saved["mode"])

    def _adopt(self, k: int) -> None:
        """Lets the acting mode of place k act with the weights of its past self."""
        if k == len(self._modes):
            self._weights.append({name: array.copy() for name, array in self.selves[k].weights.items()})
            # Each has a random stream of its own.
            lane = LaneContext(k + 1, self._weights[k], own_process=False)
            self._modes.append(self._factory(lane))
            return
        for name, array in self.selves[k].weights.items():
            self._weights[k][name][...] = array

    def _draw(self, envs: Array) -> None:
        """Opponents for the episodes that begin in these environments."""
        chances = hard_first(np.array([past.win_rate for past in self.selves]))
        self._playing[envs] = self._rng.choice(len(self.selves), size=len(envs), p=chances)
        self._rated[envs] = True
        for mode in self._modes:
            mode.reset(envs)

    def _rate(self, k: int, score: float) -> None:
        past = self.selves[k]
        self.rating += _STEP * (score - expected_score(self.rating, past.rating))
        past.win_rate += _MEMORY * (score - past.win_rate)
        past.games += 1
        self._scores.append(score)

    def _told(self, info: Mapping[str, float]) -> float:
        if self._score not in info:
            raise ConfigError(
                f"Contest(score={self._score!r}): episodes tell {', '.join(map(repr, info)) or 'nothing'}; declare it "
                "in env.info_keys, as a number that is about all agents"
            )
        return info[self._score]

    def _hidden(self, obs: Obs) -> Obs:
        """The observation in which the opponents' agents are not there."""
        leaves = dict(trees.leaves(obs))
        alive = leaves[ALIVE].copy()
        alive[:, self._opponents] = False
        hidden: Obs = trees.unflatten({**leaves, ALIVE: alive})
        return hidden


@declare(role="learn", optional=("train_output",), writes=("train_output",))
class past_selves:
    """Adds the policy to the past selves of a `Contest` every `every` iterations, and logs Elo and score.

    Put it behind the trainer. The logger writes ``train/elo``, ``train/score`` and ``train/past_selves``.

    Reads: train_output if present.
    Writes: train_output (elo, score, past_selves).
    Config: nothing.

    Args:
      contest: the environments that the collector steps; they are saved with it.
      every: iterations.
    """

    def __init__(self, contest: Contest, every: int) -> None:
        if every < 1:
            raise ConfigError(f"past_selves(every={every}): expected at least 1 iteration")
        self._contest, self._every = contest, every
        self._iterations = 0

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Logs the games of one iteration, and keeps the policy if it is time."""
        self._iterations += 1
        if self._iterations % self._every == 0:
            self._contest.keep()
        ctx.train_output = {**metrics_in(ctx, "past_selves"), **self._contest.take_metrics()}

    def state_dict(self) -> StateDict:
        return {"iterations": self._iterations}

    def load_state_dict(self, state: StateDict) -> None:
        self._iterations = int(state["iterations"])
