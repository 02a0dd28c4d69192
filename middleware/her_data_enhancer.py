"""Hindsight: goals that were reached replace the goals that were set."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.config.config import Config
from minding.engine.data.obs_trees import nested
from minding.engine.data.rollout_joins import OpenEpisodes
from minding.engine.errors import EnvError, ShapeError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, FilledBuffer, StateDict
from minding.middleware.ctx_fields import rollout_in
from minding.middleware.data_pusher import columns_of, pushes_plain_rewards

_log = logging.getLogger("minding.envs")
ACHIEVED, DESIRED, INFO = "achieved_goal", "desired_goal", "info."
RULES = ("reward", "terminated")
NORMALIZED = (
    "env.normalize_reward=true divides collected rewards by a running scale, and those of other goals would have none: "
    "turn it off; env.reward_clip clips both alike"
)
_COMPARED = 32
"""Number of rows for which a rule is called one by one, to compare with one call for all of them."""
_TOGETHER, _DICTS, _ROWS = "arrays of many rows", "many rows and as many dicts of info", "one row at a time"
Goal: TypeAlias = Mapping[str, Array]
"""The arrays of a goal ``(n, ...)``, by what follows the entry's name in their paths; an array's is empty."""


def goal_parts(paths: Iterable[str]) -> tuple[str, ...]:
    """Strings that follow `ACHIEVED` and `DESIRED` in the observation's paths: ``''``, or ``'.KEY'`` for Dict
    goals."""
    known = list(paths)
    parts = {entry: sorted(_after(entry, known)) for entry in (ACHIEVED, DESIRED)}
    for entry, found in parts.items():
        if not found:
            raise ValueError(f"has no entry {entry!r}")
    if parts[ACHIEVED] != parts[DESIRED]:
        odd = sorted({*parts[ACHIEVED]} ^ {*parts[DESIRED]})[0]
        entry, other = (ACHIEVED, DESIRED) if odd in parts[ACHIEVED] else (DESIRED, ACHIEVED)
        raise ValueError(f"has an entry {entry + odd!r}, but no {other + odd!r}")
    return tuple(parts[ACHIEVED])


def _after(entry: str, paths: Iterable[str]) -> list[str]:
    return [path.removeprefix(entry) for path in paths if path == entry or path.startswith(f"{entry}.")]


@pushes_plain_rewards
class her_data_enhancer:
    """Pushes every transition again with goals that were reached later (Andrychowicz et al., 2017, strategy `future`).

    Hindsight experience replay, https://arxiv.org/abs/1707.01495, makes `k` copies of each transition. The goal of a
    copy is the one achieved after this step or a random later step of the same episode; its reward and its end follow
    from that goal. Without `compute_terminated` a copy ends where the transition ended. Copies are pushed when their
    episode is over, however many rollouts it takes; until then its rows are kept, and saved with this middleware.
    An episode that does not fit into the buffer with its copies is processed in parts. Put this middleware after
    `data_pusher`.

    Reads: trajectories, whose observations have the entries `achieved_goal` and `desired_goal`, arrays or Dicts.
    Config: policy.other.hindsight.k, policy.learn.nstep (1), env.normalize_reward (off), env.reward_clip, seed.

    Args:
      cfg: the compiled configuration.
      buffer: the buffer that takes the copies.
      env: an environment with the rules for goals, such as ``gymnasium.make(...).unwrapped``. Its `compute_reward` and,
        if it has one, its `compute_terminated` take an achieved goal, a desired goal and the info of the step with the
        keys of `env.info_keys`, for one row or for many, see `GoalRule`.
    """

    def __init__(self, cfg: Config, buffer: FilledBuffer, env: Any) -> None:
        self._buffer, self._env, self._k = buffer, env, cfg.policy.other.hindsight.k
        self._nstep, self._normalized = cfg.policy.learn.nstep, bool(cfg.env.get("normalize_reward"))
        clip = cfg.env.reward_clip if "reward_clip" in cfg.env else None
        self._clip = math.inf if clip is None else float(clip)
        self._rules = {name: GoalRule(env, f"compute_{name}") for name in RULES if hasattr(env, f"compute_{name}")}
        self._episodes = OpenEpisodes(max(1, buffer.capacity // (self._k + 1)))
        self._compared = False
        self._parts: tuple[str, ...] = ()
        self._rng = SeedStreams(cfg.seed).generator("her_data_enhancer")

    def requirements(self) -> Sequence[str]:
        problems = []
        if self._nstep > 1:
            problems.append(f"policy.learn.nstep={self._nstep} sums rewards of one goal: use 1")
        if self._normalized:
            problems.append(NORMALIZED)
        if self._buffer.bounded:
            problems.append(
                "it pushes copies when an episode ends, which the limiter of its table may forbid: use "
                "policy.other.table.limiter=none or min_size"
            )
        if self._buffer.takes_order:
            problems.append(
                "the buffer stores sequences, or images once, and needs the order of rows, which transitions with "
                "another goal do not have: use a ReplayBuffer of single rows without images_once"
            )
        if "reward" not in self._rules:
            problems.append(
                f"the {type(self._env).__name__} has no compute_reward: pass a single environment with "
                "Gymnasium's goals, gymnasium.make(...).unwrapped, and not a manager of several"
            )
        return problems

    def __call__(self, ctx: OnlineRLContext) -> None:
        rollout = rollout_in(ctx, "her_data_enhancer")
        columns = columns_of(rollout)
        if not self._parts:
            try:
                self._parts = goal_parts(
                    [name.removeprefix("next_obs.") for name in columns if name.startswith("next_obs.")]
                )
            except ValueError as error:
                raise ShapeError(f"her_data_enhancer: the observation {error}: use an environment with goals") from None
        goals = {f"next_obs.{entry}{part}" for entry in (ACHIEVED, DESIRED) for part in self._parts}
        needed = {*self._buffer.fields, *goals, "reward", "terminated"}
        kept = {name: x for name, x in columns.items() if name in needed or name.startswith(INFO)}
        for episode in self._episodes.add(rollout, kept):
            if not self._compared:
                self._compare(episode)
            self._buffer.push(self._copies(episode))

    def _copies(self, episode: Mapping[str, Array]) -> dict[str, Array]:
        """The `k` copies of an episode's rows."""
        length = len(episode["reward"])
        reached = self._rng.integers(np.tile(np.arange(length), self._k), length)
        copies = {name: np.concatenate([values] * self._k) for name, values in episode.items()}
        for part in self._parts:
            goal = episode[f"next_obs.{ACHIEVED}{part}"][reached]
            copies[f"obs.{DESIRED}{part}"] = copies[f"next_obs.{DESIRED}{part}"] = goal
        copies["reward"] = self._reward(copies)
        if "terminated" in self._rules:
            copies["terminated"] = self._ask("terminated", copies).astype(np.bool_)
        return copies

    def _reward(self, rows: Mapping[str, Array]) -> Array:
        reward = self._ask("reward", rows).astype(np.float32)
        return np.clip(reward, -self._clip, self._clip)

    def _ask(self, rule: str, rows: Mapping[str, Array]) -> Array:
        info = {name.removeprefix(INFO): values for name, values in rows.items() if name.startswith(INFO)}
        achieved, desired = (
            {part: rows[f"next_obs.{entry}{part}"] for part in self._parts} for entry in (ACHIEVED, DESIRED)
        )
        return self._rules[rule](achieved, desired, info)

    def _compare(self, episode: Mapping[str, Array]) -> None:
        """Warns if the environment's rewards in the first episode differ from those of `compute_reward`."""
        self._compared = True
        ours = self._reward(episode)
        other = np.flatnonzero(~np.isclose(ours, episode["reward"], rtol=1e-3, atol=1e-4))
        if len(other):
            t = int(other[0])
            _log.warning(
                "in %d of %d steps of the first episode, first in step %d, the environment gave another reward (%.6g) "
                "than its compute_reward (%.6g): transitions with other goals have rewards by compute_reward alone. "
                "Put what a wrapper or the environment adds to rewards or takes from them into compute_reward",
                len(other), len(ours), t + 1, episode["reward"][t], ours[t],
            )  # fmt: skip

    def state_dict(self) -> StateDict:
        return {"rng": generator_state(self._rng), "episodes": self._episodes.state_dict(), "compared": self._compared}

    def load_state_dict(self, state: StateDict) -> None:
        restore_generator(self._rng, state["rng"])
        self._episodes.load_state_dict(state["episodes"])
        self._compared = bool(state["compared"])


class GoalRule:
    """A function of an environment with goals, such as `compute_reward`, called for many rows at once.

    Environments define it for one row, ``(achieved (G,), desired (G,), info)``, or also for many, with an info of
    arrays ``(n, ...)`` or with n dicts. Goals in a Dict are passed on as dicts of arrays. The first call finds the form
    that the function accepts, by comparison with calls for single rows: a form is used if it returns one number per
    row, the same as for the row alone if the function accepts that.
    """

    def __init__(self, env: Any, name: str) -> None:
        self._name = f"{type(env).__name__}.{name}"
        self._rule: Callable[..., Any] = getattr(env, name)
        self._form: str | None = None

    def __call__(self, achieved: Goal, desired: Goal, info: Mapping[str, Array]) -> Array:
        """Returns the values ``(n,)``; `info`: the declared entries of the steps' info, ``(n, ...)`` by name."""
        if self._form is None:
            self._form = self._find(achieved, desired, info)
        return _ask(self._rule, self._form, achieved, desired, info)

    def _find(self, achieved: Goal, desired: Goal, info: Mapping[str, Array]) -> str:
        count = _count(achieved)
        some = np.unique(np.linspace(0, count - 1, min(count, _COMPARED)).astype(np.int64))
        # Compared once more with reached goals: a rule for one row may return one value for many rows.
        twice = np.tile(some, 2)
        wanted = {part: np.concatenate([desired[part][some], achieved[part][some]]) for part in desired}
        rows = _rows(achieved, twice), wanted, _rows(info, twice)
        single, failure = self._try(_ROWS, *rows)
        for form in (_TOGETHER, _DICTS):
            found, _ = self._try(form, *rows)
            if found is not None and (single is None or np.allclose(found, single, 1e-4, 1e-5, equal_nan=True)):
                return form
        if single is None:
            raise EnvError(f"{self._name}{failure}{self._hint(failure, info)}")
        _log.info("%s takes %s, which is slower than many at once", self._name, _ROWS)
        return _ROWS

    def _try(self, form: str, achieved: Goal, desired: Goal, info: Mapping[str, Array]) -> tuple[Array | None, str]:
        try:
            found = _ask(self._rule, form, achieved, desired, info)
        except Exception as error:  # The environment is the user's program: it may raise anything.
            return None, f" raised {type(error).__name__}: {error}"
        if found.shape != (_count(achieved),) or found.dtype.kind not in "biuf":
            return None, f" returned {found.dtype} {found.shape[1:]} for a row: expected a number"
        return found, ""

    def _hint(self, failure: str, info: Mapping[str, Array]) -> str:
        if " raised KeyError" not in failure:
            return ""
        return f"; its info holds what env.info_keys names, which is {', '.join(info) or 'nothing'}: name the key there"


def _ask(rule: Callable[..., Any], form: str, achieved: Goal, desired: Goal, info: Mapping[str, Array]) -> Array:
    """The values (n,) by a rule that takes rows in this form."""
    if form == _TOGETHER:
        return np.asarray(rule(_nested(achieved), _nested(desired), dict(info)))
    count = _count(achieved)
    dicts = np.empty(count, object)
    dicts[:] = [_rows(info, n) for n in range(count)]
    if form == _DICTS:
        return np.asarray(rule(_nested(achieved), _nested(desired), dicts))
    return np.array([rule(_nested(_rows(achieved, n)), _nested(_rows(desired, n)), dicts[n]) for n in range(count)])


def _nested(goal: Goal) -> Any:
    """The goal as the environment has it: an array, or a dict of arrays and further dicts."""
    return nested({part.removeprefix("."): values for part, values in goal.items()})


def _count(goal: Goal) -> int:
    return len(next(iter(goal.values())))


def _rows(values: Mapping[str, Array], rows: Any) -> dict[str, Array]:
    return {name: array[rows] for name, array in values.items()}
