"""A chain of NumPy toys for lanes: a policy of two weights, an environment that counts, and their middleware."""

import contextlib
import dataclasses
import functools
import importlib.util
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine import OnlineRLContext, Task, declare
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import EpisodeEnd

STEPS = 4


def has_ray():
    """Whether the package is installed; a folder of tests has the same name and can be imported, too."""
    spec = importlib.util.find_spec("ray")
    return spec is not None and spec.origin is not None


@dataclasses.dataclass
class ToyContext(OnlineRLContext):
    """With kept fields of each kind that collectors may write."""

    note: Any = None
    level: float = 0.0
    longest: int = 0
    warm: bool = False

    def __post_init__(self):
        self.keep("level", "longest", "warm")


class ToyPolicy:
    """Acts with ``weight * obs + bias + noise``; learning changes both weights in place."""

    def __init__(self, seed=0):
        self.weights = {"weight": np.array([1.0, -1.0]), "bias": np.zeros(())}
        self.rng = SeedStreams(seed).generator("act")
        self.seed = seed
        # What a CkptSaver saves.
        self.config = {"policy": {"type": "toy"}, "env": {"env_id": "toy"}}

    @property
    def mode(self):
        return ToyMode(self.weights, self.rng, self.seed)

    def learn(self, rollout):
        self.weights["weight"] *= 0.9
        self.weights["weight"] += 0.01 * rollout["obs"].mean(0)
        self.weights["bias"] += 0.1 * np.tanh(rollout["action"].mean() + 0.5) - 0.05 * self.weights["bias"]

    def state_dict(self):
        arrays = {name: array.copy() for name, array in self.weights.items()}
        return {"params": arrays, "rng": generator_state(self.rng)}

    def load_state_dict(self, state):
        for name, array in self.weights.items():
            array[...] = state["params"][name]
        restore_generator(self.rng, state["rng"])


@dataclasses.dataclass(eq=False)
class ToyMode:
    """A view of the policy that acts; travels as a factory."""

    arrays: dict[str, Any]
    rng: np.random.Generator
    seed: int

    def forward(self, obs, eps=0.0):
        noise = self.rng.standard_normal(2)
        return self.arrays["weight"] * obs + self.arrays["bias"] + eps * noise

    def factory(self):
        return functools.partial(remake_mode, type(self), generator_state(self.rng), self.seed)

    def weights(self):
        return self.arrays

    def state_dict(self):
        return {"rng": generator_state(self.rng)}

    def load_state_dict(self, state):
        restore_generator(self.rng, state["rng"])


def remake_mode(kind, state, seed, lane, *own):
    rng = SeedStreams(seed).generator(f"act.{lane.index}")
    if lane.index == 0:
        restore_generator(rng, state)
    return kind(lane.weights, rng, seed, *own)


class ServedPolicy(ToyPolicy):
    """A toy policy whose network may be elsewhere; something may happen each time that it computes there."""

    def __init__(self, event=None):
        super().__init__()
        self.event = event

    @property
    def mode(self):
        return ServedMode(self.weights, self.rng, self.seed, self.event)


@dataclasses.dataclass(eq=False)
class ServedMode(ToyMode):
    event: Any = None
    network: Any = None

    def forward(self, obs, eps=0.0):
        noise = self.rng.standard_normal(2)
        if self.network is None:
            return ToyNetwork(self.arrays, None)([obs[None]])[0][0] + eps * noise
        values, bias = self.network([obs[None]])
        # The collector writes down which weights it acted with.
        self.arrays = {"bias": bias}
        return values[0] + eps * noise

    def factory(self):
        return ServedFactory(generator_state(self.rng), self.seed, self.event)


@dataclasses.dataclass
class ServedFactory:
    rng: Any
    seed: int
    event: Any

    def __call__(self, lane):
        return self.on_network(lane, None)

    def network(self, lane):
        return ToyNetwork(lane.weights, self.event), frozenset({1})

    def on_network(self, lane, network):
        return remake_mode(ServedMode, self.rng, self.seed, lane, self.event, network)


class ToyNetwork:
    """Each number of a row by itself: the same, whatever it is computed with."""

    def __init__(self, arrays, event):
        self.arrays, self.event, self.count = arrays, event, 0

    def __call__(self, leaves):
        self.count += 1
        if self.event is not None:
            self.event(self, self.count)
        return self.arrays["weight"] * leaves[0] + self.arrays["bias"], self.arrays["bias"]


class ToyEnv:
    """Draws observations from a stream of its own; cannot be pickled, as something that holds a window cannot.

    It remembers the actions of an episode of 24 steps, on which observations depend, in rows of 16 KB: soon its state
    is so large that some transports send only what is new.
    """

    resume_guarantee = "exact"

    def __init__(self, seed=0, index=0):
        self.seed, self.index, self.age, self.closed = seed, index, 0, False
        self.rng = SeedStreams(seed).generator(f"env.{index}")
        self._trail, self._length = np.zeros((24, 2048)), 0

    def step(self, action):
        if self._length == len(self._trail):
            self._length = 0
        self._trail[self._length] = action[0]
        self._length += 1
        self.age += 1
        return self.rng.standard_normal(2) + 0.01 * action + 0.001 * self._trail[: self._length].mean()

    def factory(self):
        return functools.partial(remake_env, self.seed)

    def weights(self):
        return {}

    def __reduce__(self):
        raise TypeError("a window cannot be pickled")

    def state_dict(self):
        # A view of what is written to later.
        return {"age": self.age, "rng": generator_state(self.rng), "trail": self._trail[: self._length]}

    def load_state_dict(self, state):
        self.age, self._length = state["age"], len(state["trail"])
        self._trail[: self._length] = state["trail"]
        restore_generator(self.rng, state["rng"])

    def close(self):
        self.closed = True


def remake_env(seed, lane):
    return ToyEnv(seed, lane.index)


@declare(role="collect", reads=("env_step",), optional=("collect_kwargs",), writes=("collect_kwargs",))
def toy_explorer():
    """Exploration that falls with `env_step`, as the eps-greedy handler's."""

    def explore(ctx):
        ctx.collect_kwargs = {"eps": 1.0 / (1 + ctx.env_step), "env_step": ctx.env_step}

    return explore


@declare(
    role="collect",
    reads=("env_step", "level", "warm"),
    optional=("collect_kwargs", "not_there"),
    writes=("trajectories", "env_step", "env_episode", "level", "longest", "warm"),
)
class ToyCollector:
    """Collects `STEPS` steps, every third time one less: a row that is no transition.

    Args:
      mode: acts.
      env: a `ToyEnv`.
      event: called with (collector, number of the rollout, step); what a test wants to happen.
    """

    def __init__(self, mode, env, event=None):
        self._mode, self._env, self._event = mode, env, event
        self.index, self._count = env.index, 0

    def __call__(self, ctx):
        self.index = self._env.index
        kwargs = dict(ctx.collect_kwargs)
        seen = kwargs.pop("env_step", -1)
        obs, action = np.zeros((STEPS, 2)), np.zeros((STEPS, 2))
        last = np.zeros(2)
        for t in range(STEPS):
            if self._event is not None:
                self._event(self, self._count, t)
            last = obs[t] = self._env.step(action[t - 1] if t else last)
            action[t] = self._mode.forward(obs[t], **kwargs)
        ctx.trajectories = {
            "obs": obs,
            "action": action,
            "env_step": np.array(seen),
            "bias": np.array(self._mode.arrays["bias"]),
            "worker": self.index,
            "count": self._count,
            "age": self._env.age,
            "pid": os.getpid(),
        }
        ctx.env_step += STEPS - (self._count % 3 == 2)
        # In floats, to add a difference is not to set the sum.
        ctx.level = 0.1 - 1.3 * ctx.level
        ctx.longest = self._count * 10
        ctx.warm = True
        self._count += 1

    @property
    def resume_guarantee(self):
        return self._env.resume_guarantee

    def state_dict(self):
        return {"env": self._env.state_dict(), "count": self._count}

    def load_state_dict(self, state):
        self._env.load_state_dict(state["env"])
        self._count = state["count"]

    def close(self):
        self._env.close()


@declare(role="learn", reads=("trajectories", "train_iter"), writes=("train_output", "train_iter"))
class ToyLearner:
    """Makes two gradient steps with each rollout; `freq`: in every such iteration only."""

    def __init__(self, policy, freq=1):
        self._policy, self._freq = policy, freq

    def __call__(self, ctx):
        if ctx.total_step % self._freq:
            return
        self._policy.learn(ctx.trajectories)
        ctx.train_iter += 2
        ctx.train_output = {"bias": float(self._policy.weights["bias"])}


@declare(
    role="evaluate",
    reads=("env_step", "train_iter", "last_eval_iter"),
    writes=("eval_value", "eval_output", "last_eval_iter", "last_eval_value"),
)
class ToyEvaluator:
    """The value of a policy is its bias; measured every `freq` gradient steps.

    Args:
      mode: what is measured.
      freq: gradient steps between two evaluations.
      event: called with (evaluator, number of the evaluation).
    """

    def __init__(self, mode, freq, event=None):
        self._mode, self._freq, self._event, self._count = mode, freq, event, 0

    def due(self, ctx):
        return ctx.train_iter - max(ctx.last_eval_iter, 0) >= self._freq

    def __call__(self, ctx):
        if not self.due(ctx):
            return
        if self._event is not None:
            self._event(self, self._count)
        ctx.eval_value = float(self._mode.arrays["bias"])
        weights = {f"weight_{k}": float(weight) for k, weight in enumerate(self._mode.arrays["weight"])}
        ctx.eval_output = [EpisodeEnd(self._count, ctx.eval_value, STEPS, weights)]
        ctx.last_eval_iter, ctx.last_eval_value = ctx.train_iter, ctx.eval_value
        self._count += 1

    def state_dict(self):
        return {"count": self._count}

    def load_state_dict(self, state):
        self._count = state["count"]


class Record:
    """Undeclared middleware at the end of the chain: keeps what each iteration came to, without process ids."""

    def __init__(self, policy, *also):
        self.rows, self.contexts, self.pids = [], [], []
        self._policy, self._also = policy, also

    def __call__(self, ctx):
        self.contexts.append(ctx)
        rollout = dict(ctx.trajectories)
        self.pids.append(rollout.pop("pid"))
        names = ("total_step", "env_step", "train_iter", "train_output", "level", "longest", "warm", "policy_lag")
        row = {name: getattr(ctx, name) for name in (*names, "eval_value", "eval_output", "last_eval_iter")}
        bias = float(self._policy.weights["bias"])
        self.rows.append({**row, "rollout": rollout, "bias": bias})
        for call in self._also:
            call(ctx)

    def column(self, *path):
        return [functools.reduce(lambda value, name: value[name], path, row) for row in self.rows]


def plain(value):
    """Arrays as what can be compared: dtype, shape and bytes."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    array = getattr(value, "tobytes", None)
    return value if array is None else (value.dtype.str, value.shape, value.tobytes())


@dataclasses.dataclass
class Outcome:
    """What a run came to, and what is left of it."""

    record: Record
    policy: ToyPolicy
    task: Task
    restarts: int

    @property
    def rows(self):
        """Everything that is also in a synchronous run, comparable."""
        return [{name: plain(value) for name, value in row.items() if name != "policy_lag"} for row in self.record.rows]


def lane_threads():
    """Names of the threads of lanes; the watchdog serves environments, those of earlier tests too."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("minding-") and name != "minding-watchdog"]


def run(
    steps, lanes=None, *, before=None, role=None, after=(), end=(), event=None, also=(), evaluator=None, eval_freq=None,
    eval_event=None, learn_freq=1, policy=None, log=None, task=None, **start,
):  # fmt: skip
    """Runs evaluate, explore, collect, learn, record; synchronously if `lanes` is None.

    Args:
      steps: the end of the run, or the ends of several runs.
      before: members before the collector, with `role`; the explorer by default.
      after, end: members after the collector, and after the record.
      event, eval_event: what happens in the collector and in the evaluator.
      also: called with (task, context) at the end of each iteration.
      evaluator: made of (policy, task); a `ToyEvaluator` if `eval_freq` is given.
      log: gets (iteration, arguments, keyword arguments) of each event "seen".
      task: the task; a new one by default.
    """
    policy, task = policy or ToyPolicy(), task or Task()
    with task.start(lanes is not None, ToyContext(), lanes=lanes, **start):
        if log is not None:
            task.on("seen", lambda *args, **kwargs: log.append((task.ctx.total_step, args, kwargs)))
        if evaluator is not None:
            task.use(evaluator(policy, task))
        elif eval_freq is not None:
            task.use(ToyEvaluator(policy.mode, eval_freq, eval_event))
        for member in [toy_explorer()] if before is None else before:
            task.use(member, role=role)
        task.use(ToyCollector(policy.mode, ToyEnv(), event))
        for member in after:
            task.use(member)
        record = Record(policy, *[functools.partial(call, task) for call in also])
        task.use(ToyLearner(policy, learn_freq)).use(record)
        for member in end:
            task.use(member)
        for limit in [steps] if isinstance(steps, int) else steps:
            task.run(max_step=limit)
        restarts = task.lanes.restarts if task.lanes else 0
    return Outcome(record, policy, task, restarts)


# Events


def random_delay(collector, count, t):
    """Lets collectors take different times, in an order that is another in every run."""
    time.sleep(0.002 * int.from_bytes(os.urandom(1), "big") / 255)


class DieOnce:
    """Kills its process at a step of a rollout; a file says that it has done so."""

    def __init__(self, folder, count, t=1):
        self._file, self._moment = Path(folder) / f"died-{count}", (count, t)

    def __call__(self, thing, count, t=1):
        if (count, t) == self._moment and not self._file.exists():
            # Of several workers that come here at the same time, one makes the file.
            with contextlib.suppress(FileExistsError):
                self._file.touch(exist_ok=False)
                self.die()

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


class ExitOnce(DieOnce):
    """Ends its worker, whatever that is, without an answer."""

    def die(self):
        raise SystemExit(3)
