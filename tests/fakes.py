"""Stand-ins that check what they are given, small environments, and spaces described by hand."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from minding.engine import OfflineRLContext, OnlineRLContext, compile_config
from minding.engine.buffers import DeviceTables
from minding.engine.data.action_trees import joined_space
from minding.engine.data.agent_axis import with_identity
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.types import EnvStep, EpisodeEnd, LearnOutput
from minding.middleware import StepCollector
from minding.policies import get_algorithm, kernels

needs_kernels = pytest.mark.skipif(not kernels.compiled(), reason="no C++ compiler at installation: no kernels")

# Spaces, as `envs.describe_env` describes them.


def space_of(*shape, dtype="float32", low=-1.0, high=1.0):
    """A Box."""
    return {"kind": "box", "shape": list(shape), "dtype": dtype, "low": low, "high": high}


def discrete(n):
    return {"kind": "discrete", "n": n, "start": 0}


def multi_discrete(*nvec):
    return {"kind": "multi_discrete", "nvec": list(nvec)}


def composite(*nvec, numbers):
    """Rows of choices and of numbers in [-1, 1]."""
    bounds = {"low": [-1.0] * numbers, "high": [1.0] * numbers}
    return {"kind": "composite", "shape": [len(nvec) + numbers], "dtype": "float32", "nvec": list(nvec), **bounds}


def mask_of(*counts):
    """The mask of choices with so many entries each, as an entry of an observation."""
    return {"kind": "action_mask", "counts": list(counts)}


def draw_masks(counts, rows, rng):
    """Random masks ``(rows, sum of counts)`` that leave something of each choice."""
    kept = [np.eye(n, dtype=bool)[rng.integers(0, n, rows)] for n in counts]
    return np.concatenate(kept, axis=1) | (rng.random((rows, sum(counts))) < 0.4)


def dict_of(**spaces):
    return {"kind": "dict", "spaces": spaces}


VECTOR = space_of(4)
IMAGE = space_of(1, 12, 12, dtype="uint8", low=0, high=255)


def rows_of(layout, count, rng, discrete_sizes=()):
    """Random values for every field of a layout; `discrete_sizes`: name -> number of values of an int field, or the
    counts of the choices with which rows of floats begin."""
    sizes = dict(discrete_sizes)
    values = {}
    for name, field in layout.fields.items():
        shape = (count, *field.shape)
        if field.dtype == "int32":
            values[name] = rng.integers(0, sizes.get(name, 2), shape)
        elif field.dtype == "uint8":
            values[name] = rng.integers(0, 256, shape, dtype=np.uint8)
        elif field.dtype == "bool":
            # Masks: the first two actions are legal, others at times.
            values[name] = rng.random(shape) < 0.5
            values[name][..., :2] = values[name][..., 3:] = True
        elif name == "begun":
            values[name] = rng.random(shape) < 0.2
        elif name in ("terminated", "cut", "valid", "discount", "central.alive"):
            values[name] = rng.random(shape).astype(np.float32).round(2)
        else:
            values[name] = rng.standard_normal(shape).astype(np.float32)
            if isinstance(sizes.get(name), list):
                values[name][:, : len(sizes[name])] = rng.integers(0, sizes[name], (count, len(sizes[name])))
    return values


def team_of(observation, needs, names=("a", "b", "c")):
    """What is different in the description of an environment with a team: `needs` as an algorithm has it."""
    state = space_of(2) if "global_state" in needs else None
    return {
        "observation": observation if observation["kind"] == "dict" else dict_of(observation=observation),
        "num_agents": len(names),
        "agents": {"names": [*names], "state": state, "team_reward": "team_reward" in needs},
    }


def action_of(kinds):
    """A small space of one of these kinds."""
    if kinds == ("composite",):
        return composite(3, numbers=2)
    return discrete(3) if "discrete" in kinds else space_of(2)


def env_action(action, **changes):
    """The environment's action space behind that of a policy: with no `changes`, actions mean the same in both."""
    if action["kind"] == "box":
        return {**action, "rescaled": True, **changes}
    if action["kind"] == "composite":
        parts = [{"kind": "discrete", "shape": [], "dtype": "int64", "n": n, "start": 0} for n in action["nvec"]]
        # A Box for each number.
        boxes = [space_of(1, low=low, high=high) for low, high in zip(action["low"], action["high"])]
        return joined_space({"kind": "tuple", "spaces": [*parts, *boxes]}, rescale=True)
    sizes = action.get("nvec")
    return {"shape": [len(sizes)] if sizes else [], "dtype": "int64", **action, "start": 0, **changes}


def tiny_config(algorithm, observation=VECTOR, action=None, seed=0, env=None, team=("a", "b", "c"), **overrides):
    """A small compiled configuration, for spaces that no environment has to back; hidden layers of 8.

    `env`: what differs in the environment's own action space, see `env_action`; `team`: the agents, if several.
    """
    entry = get_algorithm(algorithm)
    if action is None:
        action = action_of(entry.actions)
    spec = {
        "observation": observation,
        "action": action,
        "env_action": env_action(action, **(env or {})),
        "max_episode_steps": 10,
        "num_agents": 1,
        **(team_of(observation, entry.needs, team) if entry.agents == "several" else {}),
    }
    if entry.agents == "several" and not entry.own_networks:
        spec["observation"] = with_identity(spec["observation"], len(team))
    user = {
        "seed": seed,
        "env": {"env_id": "none", "collector_env_num": 2, "evaluator_env_num": 2},
        "policy": {"type": algorithm, "model": {"hidden": [8], "cnn_dim": 8, "encoder_dim": 4}},
    }
    texts = [f"{key}={'null' if value is None else value}" for key, value in overrides.items()]
    return compile_config(user, entry, lambda env: spec, overrides=texts)


def set_rate(policy, rate):
    """Gives all optimizer groups of a policy this learning rate."""
    groups = policy.root.optim.groups
    groups.update({name: dataclasses.replace(group, rate=rate) for name, group in groups.items()})


class Batches:
    """Makes batches for a policy, all in the same device tables, as those of a buffer are.

    Args:
      policy: its learn mode says the fields.
      rows: how many rows the tables hold.
    """

    def __init__(self, policy, rows):
        action = policy.spec["action"]
        self.sizes = {"action": list(action["nvec"])} if action["kind"] == "composite" else {}
        self.layout = RowLayout(policy.learn_mode.fields)
        self.tables = DeviceTables(self.layout, rows)

    def __call__(self, values, index):
        self.tables.write(0, self.layout.pack(values))
        return IndexedBatch(self.layout, self.tables, np.asarray(index, np.int32))


def refuses(error, *cases):
    """Each case, (words, call), raises this error, and its message has the words."""
    for words, call in cases:
        with pytest.raises(error) as caught:
            call()
        assert words in str(caught.value), f"{words!r} is not in: {caught.value}"


# Environments, policies, learners.


class CountingEnv:
    """N deterministic environments: the observation is (environment, episode, age), the reward the new age.

    Args:
      lengths: episode length of each environment.
      end: 'terminated' or 'truncated', for each environment.
      reset_rows: after an end, spend a step on the reset and mark its row as not valid; until then the observation
        is the final one (the NEXT_STEP form of autoreset).
    """

    def __init__(self, lengths=(3, 2), end=("terminated", "truncated"), reset_rows=False):
        self.num_envs = len(lengths)
        self.lengths, self.end, self.reset_rows = lengths, end, reset_rows
        self.episode = np.zeros(self.num_envs, int)
        self.age = np.zeros(self.num_envs, int)
        self.done = np.zeros(self.num_envs, bool)
        self.actions = []
        self.resets, self.abandoned, self.closed, self._obs = 0, 0, False, None

    resume_guarantee = "exact"

    def _observe(self):
        return np.stack([np.arange(self.num_envs), self.episode, self.age], axis=1).astype(np.float32)

    def reset(self, seed=None):
        assert not self.closed
        if self._obs is not None:
            self.episode += 1
        self.age[:] = 0
        self.done[:] = False
        self.resets += 1
        self._obs = self._observe()
        return self._obs

    @property
    def obs(self):
        return self.reset() if self._obs is None else self._obs

    @property
    def episode_steps(self):
        return self.age

    def step(self, action):
        assert not self.closed, "step after close"
        assert self._obs is not None, "step before reset"
        assert action.shape == (self.num_envs,)
        assert action.dtype.kind == "i"
        self.actions.append(action.copy())
        valid = ~self.done
        self._begin(~valid)
        self.age[valid] += 1
        over = valid & (self.age == self.lengths)
        next_obs = self._observe()
        reward = np.where(valid, self.age, 0).astype(np.float32)
        episodes = [
            EpisodeEnd(env_id=int(n), episode_return=float(sum(range(1, age + 1))), episode_length=age)
            for n, age in enumerate(self.age.tolist())
            if over[n]
        ]
        if self.reset_rows:
            self.done = over
            obs = next_obs
        else:
            self._begin(over)
            obs = self._observe() if over.any() else next_obs
        self._obs = obs
        terminated = over & (np.array(self.end) == "terminated")
        return EnvStep(obs, next_obs, reward, terminated, over & ~terminated, None if valid.all() else valid, episodes)

    def play(self, action):
        return self.step(action)

    def _begin(self, rows):
        self.episode[rows] += 1
        self.age[rows] = 0

    def abandon(self):
        assert self._obs is not None
        self.abandoned += 1

    def close(self):
        self.closed = True

    def state_dict(self):
        return {"episode": self.episode.copy(), "age": self.age.copy()}

    def load_state_dict(self, state):
        self.episode, self.age = state["episode"].copy(), state["age"].copy()
        self._obs = self._observe()


class AgePolicy:
    """Collect and eval mode for `CountingEnv`: acts with the age, values a state at 10 times its age."""

    record_fields = ("value",)

    def __init__(self, value=True):
        self.calls, self.resets, self.kwargs = 0, 0, []
        if not value:
            self.record_fields = ()

    def _act(self, obs):
        assert obs.ndim == 2
        assert obs.dtype == np.float32
        self.calls += 1
        return obs[:, 2].astype(np.int64)

    def value(self, obs):
        assert obs.ndim == 2
        return 10.0 * obs[:, 2].astype(np.float32)

    def reset(self, env_ids=None):
        self.resets += env_ids is None

    @property
    def collect_mode(self):
        return _CollectMode(self)

    @property
    def eval_mode(self):
        return _EvalMode(self)


def collected(cfg, env, mode=None):
    """The context after a rollout, by default of a policy that values nothing."""
    ctx = OnlineRLContext()
    StepCollector(cfg, AgePolicy(value=False).collect_mode if mode is None else mode, env)(ctx)
    return ctx


class CountingPolicy(AgePolicy):
    """Remembers how many observations of the running episode it has seen: in `CountingEnv` that is their age.

    Values a state at 10 times its age and 100 times what is remembered before it.
    """

    def __init__(self):
        super().__init__()
        self.memory = None

    def _act(self, obs):
        if self.memory is None:
            self.memory = np.zeros((len(obs), 1), np.float32)
        assert len(self.memory) == len(obs)
        self.before, self.memory = self.memory, self.memory + 1
        return super()._act(obs)

    def reset(self, env_ids=None):
        super().reset(env_ids)
        if env_ids is None:
            self.memory = None
        elif self.memory is not None:
            self.memory[env_ids] = 0

    @property
    def collect_mode(self):
        return _CountingCollectMode(self)


@dataclasses.dataclass
class _CollectMode:
    policy: AgePolicy

    @property
    def record_fields(self):
        return self.policy.record_fields

    def forward(self, obs, *, random=False, **collect_kwargs):
        self.policy.kwargs.append({"random": random, **collect_kwargs})
        output = {"action": self.policy._act(obs)}
        return {**output, "value": self.policy.value(obs)} if self.record_fields else output

    def value(self, obs, memory=None):
        return self.policy.value(obs)

    memory = None

    def reset(self, env_ids=None):
        self.policy.reset(env_ids)


class _CountingCollectMode(_CollectMode):
    record_fields = ("value", "memory")

    @property
    def memory(self):
        return self.policy.memory

    def forward(self, obs, **collect_kwargs):
        output = super().forward(obs, **collect_kwargs)
        return {**output, "value": self.value(obs, self.policy.before), "memory": self.policy.before}

    def value(self, obs, memory):
        assert memory.shape == (len(obs), 1)
        return self.policy.value(obs) + 100.0 * memory[:, 0]


@dataclasses.dataclass
class _EvalMode:
    policy: AgePolicy

    def forward(self, obs):
        return self.policy._act(obs)

    def reset(self, env_ids=None):
        self.policy.reset(env_ids)


class Weights:
    """A policy that is one array, such as the gradient steps made, with any configuration."""

    def __init__(self, config, size=1):
        self.config, self.value = config, np.zeros(size)

    def state_dict(self):
        return {"params": {"net.w": self.value.copy()}}

    def load_state_dict(self, state):
        self.value[...] = state["params"]["net.w"]

    def acting_arrays(self):
        return {"net.w": self.value.copy()}, "module:Net"


class ReadingLearner:
    """Learn mode that checks the batch it is given and keeps the rows of each gradient step and which count."""

    def __init__(self, fields):
        self.fields = fields
        self.layout = RowLayout(fields)
        self.steps, self.counts, self.progress = [], [], []

    def forward(self, batch, progress=0.0):
        assert batch.index.dtype == np.int32
        if batch.valid is not None:
            assert (batch.valid.dtype, batch.valid.shape) == (np.float32, batch.index.shape)
            self.counts += batch.valid.tolist()
        assert batch.index.ndim in (2, 3)
        tables = batch.tables.host
        assert [t.shape[1] for t in tables] == [t.shape[1] for t in self.layout.empty(1)]
        assert 0 <= batch.index.min() <= batch.index.max() < len(tables[0])
        for rows in batch.index:
            self.steps.append({name: batch.layout.read(tables, name, rows) for name in batch.layout.fields})
        self.progress.append(progress)
        return LearnOutput({"loss": 0.5}, steps=len(batch.index))


COUNTING_FIELDS = {
    "obs": Field((3,)),
    "next_obs": Field((3,)),
    "action": Field((), "int32"),
    "reward": Field(),
    "terminated": Field(),
    "discount": Field(default=0.9),
}
"""Rows of `CountingEnv` for replay."""


class Recording:
    """Makes a context note which fields are read and which are set; `begin` starts the notes."""

    def begin(self):
        object.__setattr__(self, "touched", (set(), set()))
        return self

    def __getattribute__(self, name):
        get = object.__getattribute__
        fields = get(self, "__dataclass_fields__").keys() - {"unit", "_kept", "_clock_begin"}
        if name in ("clock", "clock_begin") or name in fields:
            notes = get(self, "__dict__").get("touched")
            # What a middleware wrote itself is no read of another's field.
            if notes is not None and name not in notes[1]:
                notes[0].add("clock" if name == "clock_begin" else name)
        return get(self, get(self, "unit") if name == "clock" else name)

    def __setattr__(self, name, value):
        notes = self.__dict__.get("touched")
        if notes is not None:
            notes[1].add(name)
        super().__setattr__(name, value)


class RecordingContext(Recording, OnlineRLContext):
    """See `Recording`."""


class RecordingOfflineContext(Recording, OfflineRLContext):
    """See `Recording`."""


JUDGED = {
    "box": gymnasium.spaces.Box(-2.0, 4.0, (2,)),
    "box, limits for each number": gymnasium.spaces.Box(
        np.float32([[-0.1, 5.0], [0.0, -3.0]]), np.float32([[0.7, 6.0], [1e-3, 300.0]])
    ),
    "box, float64": gymnasium.spaces.Box(-0.1, 0.7, (3,), np.float64),
    "box, half infinite": gymnasium.spaces.Box(-np.inf, 0.1, (2,)),
    "discrete": gymnasium.spaces.Discrete(3),
    "discrete, from minus four": gymnasium.spaces.Discrete(3, start=-4),
    "discrete, int8": gymnasium.spaces.Discrete(3, start=100, dtype=np.int8),
    "multi_discrete": gymnasium.spaces.MultiDiscrete([3, 2]),
    "multi_discrete, two axes": gymnasium.spaces.MultiDiscrete(
        [[2, 3], [4, 2]], dtype=np.int32, start=[[10, -1], [0, 7]]
    ),
    "tuple": gymnasium.spaces.Tuple(
        (gymnasium.spaces.Box(-0.1, 0.7, (2,), np.float64), gymnasium.spaces.Discrete(3, start=5))
    ),
    "dict": gymnasium.spaces.Dict(
        turn=gymnasium.spaces.Box(-2.0, 4.0, ()),
        legs=gymnasium.spaces.Dict(a=gymnasium.spaces.MultiBinary(2), b=gymnasium.spaces.Box(0.0, np.inf, (1, 2))),
    ),
    "tuple of choices": gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3), gymnasium.spaces.MultiBinary((2, 1)))),
    "dict of numbers": gymnasium.spaces.Dict(
        a=gymnasium.spaces.Box(-0.1, 0.7, (2,)), b=gymnasium.spaces.Box(2.0, 3.0, (1,))
    ),
}


def nested(action):
    return isinstance(action, tuple | dict)


class Judge(gymnasium.Env):
    """Takes members of its action space only; the reward and the next observation tell which. Episodes of 6 steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def __init__(self, kind):
        self.action_space = JUDGED[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.np_random.standard_normal(4, dtype=np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), (self.action_space, action)
        self.age += 1
        numbers = gymnasium.spaces.flatten(self.action_space, action) if nested(action) else np.ravel(action)
        told = np.float32(np.dot(numbers, np.arange(1.0, 1.0 + np.size(numbers))))
        obs = self.np_random.standard_normal(4, dtype=np.float32)
        obs[0] = np.tanh(told)
        return obs, float(told), self.age == 6, False, {}
