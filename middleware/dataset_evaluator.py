"""Evaluation of a policy on recorded data: without an environment, on episodes that it has not learned from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from minding.engine.chain.context import OfflineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.chain.task import Task
from minding.engine.chain.task import task as global_task
from minding.engine.config.config import Config
from minding.engine.data import obs_trees
from minding.engine.data.actions import ActionAdapter
from minding.engine.data.dataset import Dataset
from minding.engine.data.holdout import DatasetPart, first_steps, hold_out
from minding.engine.data.rewards import RewardScale
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array, EvalMode
from minding.middleware.offline_data_fetcher import offline_data_fetcher

_MOST_ROWS = 20_000
"""Most held-out steps that are used; if there are more, the seed selects this many."""
_BLOCK = 4096
_TIMES = 8.0
"""Number of horizons that the target network's averaging spans in one fit."""
_STEPS_PER_HORIZON = 50
"""Fewest gradient steps of a fit per step of the horizon; with fewer, values are too small in size."""


class FittedQ(Protocol):
    """A network that is fitted to the values of a policy, such as `policies.learning.off_policy_evaluation.FittedQ`."""

    def restart(self) -> None: ...

    def learn(self, rows: Mapping[str, Array], steps: int, progress: float, tau: float) -> float:
        """Makes gradient steps, see `policies.learning.off_policy_evaluation.FittedQ.learn`; returns the mean loss."""
        ...

    def values(self, obs: Mapping[str, Array], action: Array) -> Array:
        """Q(s, a), float32 ``(n,)``."""
        ...


class JudgedPolicy(Protocol):
    """The interface of a policy that is evaluated on recorded data."""

    @property
    def eval_mode(self) -> EvalMode: ...

    @property
    def reward_scale(self) -> RewardScale:
        """The scaling of rewards with which the policy learns."""
        ...

    def action_values(self, obs: Mapping[str, Array], action: Array) -> Array | None:
        """Q(s, a), float32 ``(n,)``, of the rewards as scaled for learning; None if the algorithm has no Q."""
        ...

    def fitted_q(self, gamma: float, limits: tuple[float, float]) -> FittedQ: ...


@declare(reads=("train_iter", "last_data_eval_iter"), writes=("data_eval", "last_data_eval_iter"))
class dataset_evaluator:
    """Evaluates the policy on recorded episodes once every `freq` gradient steps, without an environment.

    It computes these numbers on at most 20,000 steps of held-out episodes (`policy.other.holdout`):

    - ``action_distance``, if actions are a Box: mean Euclidean distance of the policy's action from the recorded one,
      in the policy's own units; otherwise ``other_actions``, the share of actions that differ;
    - ``td_error``, for algorithms with action values: mean of
      ``|Q(s, a) - R - gamma (1 - terminated) Q(s', pi(s'))|``, with rewards as scaled for learning;
    - ``first_value``, for the same algorithms: mean of ``Q(s, pi(s))`` in the first states of all held-out episodes.

    `policy.eval.fqe` adds ``fqe_value``: the mean value of these first states by fitted Q evaluation (Le et al., 2019,
    https://arxiv.org/abs/1903.08738), with the environment's own rewards, discounted. Each evaluation fits a fresh
    network on the training episodes. If no episode is held out, this is the only number, and it is computed for the
    first states of all episodes.

    pi is the policy without exploration. All numbers follow from the seed and `train_iter`; nothing has to be saved.

    At the end of a run its last policy is evaluated, too, unless it already was; this does not postpone the next
    evaluation of a resumed run. A fit takes seconds, and a signal that ends the run aborts it: the evaluation is due
    again after a resume.

    Reads: train_iter, last_data_eval_iter.
    Writes: data_eval, last_data_eval_iter.
    Config: policy.eval.freq, policy.eval.fqe, policy.eval.fqe_steps, policy.other.holdout, policy.learn.batch_size,
      policy.learn.steps_per_call, policy.learn.gamma, seed.

    Args:
      cfg: the compiled configuration.
      policy: the policy that learns, with all its modes.
      dataset: all recorded data; the fetcher takes the first part into which `hold_out` splits them.
      task: the task whose signals are obeyed; the global one by default.
    """

    def __init__(self, cfg: Config, policy: JudgedPolicy, dataset: Dataset, *, task: Task[Any] | None = None) -> None:
        self._cfg, self._policy = cfg, policy
        self._task = global_task if task is None else task
        # `train_iter` of the policy that this process evaluated last.
        self._judged = -1
        self._aborted = False
        self._learned, self._held = hold_out(dataset, cfg.policy.other.holdout, cfg.seed)
        self._freq = cfg.policy.eval.freq
        self._adapter = ActionAdapter(dataset.about["env"]["env_action"])
        self._streams = SeedStreams(cfg.seed)
        self._gamma = cfg.policy.learn.gamma
        self._fit = _Fit(cfg, self._learned, self._gamma) if cfg.policy.eval.fqe else None
        self._index = np.arange(0 if self._held is None else len(self._held))
        if len(self._index) > _MOST_ROWS:
            rng = self._streams.generator("dataset_evaluator")
            self._index = np.sort(rng.choice(self._index, _MOST_ROWS, replace=False))

    def requirements(self) -> Sequence[str]:
        if problems := unfit_for_fqe(self._cfg, self._learned):
            return problems
        if self._fit is None and self._held is None:
            return ["there is nothing to judge by: set policy.other.holdout to a share of the episodes, such as 0.1"]
        return []

    def clashes(self, chain: Sequence[object]) -> Sequence[str]:
        """Reports if the run learns from the held-out episodes."""
        if any(isinstance(other, offline_data_fetcher) and other.digest != self._learned.digest for other in chain):
            return [
                "the episodes that it judges by are learned from: give offline_data_fetcher the tables of the rest, "
                "learned, held = hold_out(dataset, cfg.policy.other.holdout, cfg.seed)"
            ]
        return []

    def __call__(self, ctx: OfflineRLContext) -> None:
        """Evaluates the policy if an evaluation is due."""
        if ctx.train_iter - max(ctx.last_data_eval_iter, 0) < self._freq:
            return
        found = self.judge(ctx.train_iter)
        if self._fit is not None and "fqe_value" not in found:
            self._aborted = True
            return
        ctx.data_eval, ctx.last_data_eval_iter = found, ctx.train_iter
        self._judged = ctx.train_iter

    def finish(self, ctx: OfflineRLContext) -> None:
        """Evaluates the last policy of the run, unless it was already evaluated or an error ends the run."""
        if self._task.error is not None or not ctx.train_iter or self._judged == ctx.train_iter:
            return
        ctx.data_eval = self.judge(ctx.train_iter) or None
        self._judged = ctx.train_iter

    @property
    def resume_guarantee(self) -> str:
        """Not exact once a fit was aborted: it then runs an iteration later and measures another policy."""
        return "mid-iteration" if self._aborted else "exact"

    def judge(self, train_iter: int) -> dict[str, float]:
        """The estimates of the current policy from the data, by name; `train_iter` selects the random stream.
        `fqe_value` is missing if a signal ends the run meanwhile."""
        found = {} if self._held is None else self._by_steps(self._held)
        first = self._observed(self._learned if self._held is None else self._held, "obs", None)
        if self._held is not None:
            values = self._policy.action_values(first, self._actions(first))
            if values is not None:
                found["first_value"] = float(values.mean(dtype=np.float64))
        if self._fit is not None:
            rng = self._streams.generator(f"dataset_evaluator.{train_iter}")
            fitted = self._fit.fitted(
                self._policy, self._actions, rng, stop=lambda: self._task.interrupted_by is not None
            )
            if fitted is not None:
                values = fitted.values(first, self._actions(first))
                found["fqe_value"] = float(values.mean(dtype=np.float64)) * self._fit.scale
        return found

    def _by_steps(self, held: DatasetPart) -> dict[str, float]:
        rows = held.rows(("action", "reward", "terminated"), self._index)
        obs = self._observed(held, "obs", self._index)
        own = self._actions(obs)
        found = _distance(own, rows["action"], self._adapter)
        q = self._policy.action_values(obs, rows["action"])
        if q is None:
            return found
        following = self._observed(held, "next_obs", self._index)
        next_q = self._policy.action_values(following, self._actions(following))
        assert next_q is not None
        factor, offset = self._policy.reward_scale.numbers()
        target = rows["reward"] * factor + offset + self._gamma * ~rows["terminated"] * next_q
        return {**found, "td_error": float(np.abs(q - target).mean(dtype=np.float64))}

    def _observed(self, data: Dataset | DatasetPart, prefix: str, index: Array | None) -> dict[str, Array]:
        """Observations by path; without an index, the observations of all first steps."""
        index = first_steps(data) if index is None else index
        names = [name for name in data.names if name.partition(".")[0] == prefix]
        return {name.partition(".")[2]: values for name, values in data.rows(names, index).items()}

    def _actions(self, obs: Mapping[str, Array]) -> Array:
        """The policy's actions without exploration, in its own units."""
        found = []
        for start in range(0, len(next(iter(obs.values()))), _BLOCK):
            part = {path: values[start : start + _BLOCK] for path, values in obs.items()}
            found.append(self._policy.eval_mode.forward(obs_trees.unflatten(part)))
        return self._adapter.invert(np.concatenate(found))


def unfit_for_fqe(cfg: Config, data: Dataset | DatasetPart) -> list[str]:
    """Returns a sentence if `policy.eval.fqe` is set and its values would be wrong, else an empty list."""
    if not cfg.policy.eval.fqe:
        return []
    kind, steps = cfg.env.spec.action.kind, cfg.policy.eval.fqe_steps
    if kind not in ("discrete", "box"):
        return [f"policy.eval.fqe=true fits values of Discrete or Box actions, and these are {kind}: set it to false"]
    gamma = cfg.policy.learn.gamma
    horizon = _horizon(data, gamma)
    if math.isinf(horizon):
        return [
            "policy.eval.fqe=true with policy.learn.gamma=1: no recorded episode terminates, so sums of rewards have "
            "no end; set policy.learn.gamma below 1, such as 0.99"
        ]
    # Rounded first, because 1 / (1 - gamma) is not exact.
    needed = math.ceil(round(_STEPS_PER_HORIZON * horizon, 3))
    if steps < needed:
        return [
            f"policy.eval.fqe_steps={steps} with policy.learn.gamma={gamma:g}: rewards add up over {horizon:,.0f} "
            f"steps, and a fit needs {_STEPS_PER_HORIZON} gradient steps for each; set policy.eval.fqe_steps={needed}"
        ]
    return []


def _horizon(data: Dataset | DatasetPart, gamma: float) -> float:
    """The number of steps over which rewards add up, which can be more than any recorded episode has: a time limit
    ends no value, and the policy may avoid the ends in the data. Without discounting, the mean number of steps per true
    end; infinite if there is none."""
    if gamma < 1:
        return 1.0 / (1.0 - gamma)
    ends = int(data.rows(["terminated"], data.end)["terminated"].sum())
    return len(data) / ends if ends else math.inf


class _Fit:
    """Fitted Q evaluation: draws rows, adds the policy's actions in their next states, and trains a network on
    them."""

    def __init__(self, cfg: Config, data: Dataset | DatasetPart, gamma: float) -> None:
        learn, self._steps = cfg.policy.learn, cfg.policy.eval.fqe_steps
        self._data, self._gamma = data, gamma
        self._per_call, self._batch = min(learn.steps_per_call, self._steps), learn.batch_size
        horizon = _horizon(data, gamma)
        reward = data.rows(["reward"], np.arange(len(data)))["reward"].astype(np.float64)
        self.scale = float(np.sqrt(np.mean(reward**2))) * horizon or 1.0
        # The smallest and largest possible return: one reward, if an episode ends at once, or the sum of all.
        low, high = (float(each) / self.scale for each in (reward.min(), reward.max()))
        total = 1.0 / max(1.0 - gamma, 1e-6)
        self._limits = min(low, low * total), max(high, high * total)
        self._tau = float(np.clip(_TIMES * horizon / self._steps, 0.005, 1.0))
        self._fitted: FittedQ | None = None

    def fitted(
        self, policy: JudgedPolicy, act: _Act, rng: np.random.Generator, stop: Callable[[], bool]
    ) -> FittedQ | None:
        """The network, fitted to the current policy; None if `stop()` becomes true during the fit."""
        if self._fitted is None:
            # It is built here because the moments of observations are known only after the first gradient steps.
            self._fitted = policy.fitted_q(self._gamma, self._limits)
        self._fitted.restart()
        for done in range(0, self._steps, self._per_call):
            if stop():
                return None
            index = rng.integers(len(self._data), size=self._per_call * self._batch)
            rows = self._data.rows(self._data.names, index)
            prefix = "next_obs"
            obs = {k.partition(".")[2]: v for k, v in rows.items() if k.partition(".")[0] == prefix}
            rows["next_action"], rows["reward"] = act(obs), rows["reward"] / np.float32(self.scale)
            self._fitted.learn(rows, self._per_call, done / self._steps, self._tau)
        return self._fitted


class _Act(Protocol):
    def __call__(self, obs: Mapping[str, Array], /) -> Array: ...


def _distance(own: Array, recorded: Array, adapter: ActionAdapter) -> dict[str, float]:
    """The differences of actions ``(n, ...)`` from the recorded ones, under the names of their measures: one of choices
    and one of numbers, where an action has these."""
    if not adapter.continuous:
        return {"other_actions": float(np.mean(own != recorded))}
    apart = (own.astype(np.float64) - recorded).reshape(len(own), -1)
    choices, numbers = apart[:, : adapter.choices], apart[:, adapter.choices :]
    found = {"other_actions": float(np.mean(choices != 0))} if adapter.choices else {}
    return {**found, "action_distance": float(np.sqrt((numbers**2).sum(axis=1)).mean())}
