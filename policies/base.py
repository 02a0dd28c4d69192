"""What all policies share: seeds, acting backends, the three modes, and state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from minding.engine import runtime, trees
from minding.engine.batch import Field, IndexedBatch, RowLayout
from minding.engine.config import schema_defaults
from minding.engine.errors import CheckpointError, MindingError, SpaceError
from minding.engine.observation import Leaf, observation_leaves
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, Obs, StateDict
from minding.policies import get_algorithm
from minding.policies.acting import Outputs, make_actor
from minding.policies.guard import LearnGuard
from minding.policies.networks.encoder import Normalizer, ObsEncoder

MODES = ("collect", "learn", "eval")


@dataclasses.dataclass(frozen=True, slots=True)
class CollectMode:
    """Acts with exploration. See `engine.types.CollectMode`."""

    forward: Callable[..., dict[str, Array]]
    value: Callable[[Obs], Array]
    reset: Callable[..., None]
    record_fields: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class LearnMode:
    """All gradient steps of one iteration in one compiled call. See `engine.types.LearnMode`."""

    forward: Callable[..., dict[str, float]]
    """(batch, progress=0.0) -> metrics; `progress` in [0, 1] drives schedules."""
    fields: Mapping[str, Field]
    """The rows that `forward` reads."""


@dataclasses.dataclass(frozen=True, slots=True)
class EvalMode:
    """Acts without exploration. See `engine.types.EvalMode`."""

    forward: Callable[[Obs], Array]
    reset: Callable[..., None]


class BasePolicy:
    """Base of all policies. A subclass builds `root` in `_build` and defines `_act`, `_learn` and `_mode`.

    Args:
      cfg: the compiled configuration (`compile_config`).
      modes: what to build. Without 'learn' there are no target networks and no optimizers.
    """

    name: ClassVar[str]
    record_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, cfg: Any, modes: Sequence[str] = MODES) -> None:
        unknown = set(modes) - set(MODES)
        if unknown:
            raise MindingError(f"{type(self).__name__}: modes are {', '.join(MODES)}; got {sorted(unknown)}")
        runtime.configure(cfg.device)
        self.config = cfg
        self.cfg = cfg.policy
        self.spec = cfg.env.spec
        self.modes = tuple(modes)
        self._check_actions()
        streams = SeedStreams(cfg.seed)
        self.act_rng = streams.generator("policy.act")
        self.learn_rng = streams.generator("policy.learn")
        self.leaves = observation_leaves(self.spec["observation"])
        self.layout = RowLayout(self.row_fields)
        self.root, self.actor = self._build(streams.generator("policy.init"))
        # Naming the parameters by their path makes one flat state with unique names.
        self.params = dict(self.root.parameters_and_names())
        self._normalizers = _find_normalizers(self.root)
        self._outputs = make_actor(self.actor, self.cfg.collect.backend, f"{self.name}.act")
        self._guarded_learn = LearnGuard(self.name, self.cfg.learn.on_nan, self, self._learn)

    # What an algorithm defines.

    def _build(self, rng: np.random.Generator) -> tuple[Any, Any]:
        """Returns (root cell, the network that acts, with an `encoder`)."""
        raise NotImplementedError

    def _act(self, outputs: Outputs, **collect_kwargs: Any) -> dict[str, Array]:
        raise NotImplementedError

    def _mode(self, outputs: Outputs) -> Array:
        raise NotImplementedError

    def _learn(self, batch: IndexedBatch, progress: float) -> dict[str, float]:
        raise NotImplementedError

    @property
    def row_fields(self) -> dict[str, Field]:
        """The fields of a row that learning reads; for replay also those of the buffer."""
        raise NotImplementedError

    # Modes.

    @property
    def collect_mode(self) -> CollectMode:
        self._require("collect")
        return CollectMode(self._collect, self._value, self._reset, self.record_fields)

    @property
    def learn_mode(self) -> LearnMode:
        self._require("learn")
        return LearnMode(self._guarded_learn, self.row_fields)

    @property
    def eval_mode(self) -> EvalMode:
        self._require("eval")
        return EvalMode(self._eval, self._reset)

    @classmethod
    def config_schema(cls) -> dict[str, Any]:
        return get_algorithm(cls.name).config_schema()

    @classmethod
    def default_config(cls) -> Any:
        """The algorithm's defaults, the `policy` part of a configuration."""
        return schema_defaults(cls.config_schema())

    def _require(self, mode: str) -> None:
        if mode not in self.modes:
            raise MindingError(
                f"{type(self).__name__} was built for {', '.join(self.modes)}; {mode}_mode needs modes=(..., {mode!r})"
            )

    def _check_actions(self) -> None:
        kind = self.spec["action"]["kind"]
        allowed = get_algorithm(self.name).actions
        if kind not in allowed:
            raise SpaceError(
                f"policy.type: {self.name} acts in spaces of kind {', '.join(allowed)}; the environment's is {kind!r}"
            )

    # Acting.

    def outputs(self, obs: Obs) -> Outputs:
        """The acting network's outputs for a batch of observations, ``(B, ...)`` each."""
        if isinstance(obs, np.ndarray):
            return self._outputs((obs,))
        return self._outputs([leaf for _, leaf in trees.leaves(obs)])

    def _collect(self, obs: Obs, *, random: bool = False, **collect_kwargs: Any) -> dict[str, Array]:
        record = self._act(self.outputs(obs), **collect_kwargs)
        if random:
            record["action"] = self._random_action(len(record["action"]))
        return record

    def _random_action(self, count: int) -> Array:
        space = self.spec["action"]
        if space["kind"] == "discrete":
            return self.act_rng.integers(0, space["n"], size=count)
        if space["kind"] == "multi_discrete":
            return self.act_rng.integers(0, space["nvec"], size=(count, len(space["nvec"])))
        return self.act_rng.uniform(-1.0, 1.0, size=(count, *space["shape"])).astype(np.float32)

    def _value(self, obs: Obs) -> Array:
        raise MindingError(f"{self.name} has no state value; gae_estimator fits actor-critic policies such as PPO")

    def _eval(self, obs: Obs) -> Array:
        return self._mode(self.outputs(obs))

    def _reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Forgets what is remembered of these environments; nothing for policies without memory."""

    def _shaped(self, action: Array) -> Array:
        """Flat Box actions ``(B, A)`` in the space's own shape."""
        return action.reshape(-1, *self.spec["action"]["shape"])

    # Learning.

    def obs_fields(self, prefix: str) -> dict[str, Field]:
        """Row fields of an observation, one a leaf."""
        return {leaf_name(prefix, leaf): leaf.field for leaf in self.leaves}

    @property
    def action_field(self) -> Field:
        space = self.spec["action"]
        if space["kind"] == "discrete":
            return Field((), "int32")
        if space["kind"] == "multi_discrete":
            return Field((len(space["nvec"]),), "int32")
        return Field(tuple(space["shape"]))

    def update_normalizers(self, batch: IndexedBatch) -> None:
        """Takes the batch's observations into the running moments, after learning (see `Normalizer`)."""
        if not self._normalizers:
            return
        # Only rows that were learned from: a replay buffer may hold empty ones, a rollout those of resets.
        rows = np.unique(batch.index)
        for k, normalizer in self._normalizers.values():
            values = batch.layout.read(batch.tables.host, leaf_name("obs", self.leaves[k]), rows)
            normalizer.update(values.reshape(len(values), -1))

    # State.

    def state_dict(self) -> StateDict:
        """Copies of all parameters by name (networks, targets, optimizers, temperatures), moments and generators."""
        return {
            "params": {name: p.asnumpy().copy() for name, p in self.params.items()},
            "moments": {name: n.moments.state_dict() for name, (_, n) in self._normalizers.items()},
            "rng": {"act": generator_state(self.act_rng), "learn": generator_state(self.learn_rng)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Writes saved values into the live parameters, in place, so that compiled graphs use them.

        A policy built for fewer modes takes what it has; a saved state must hold every parameter of this policy.

        Raises:
          CheckpointError: if a parameter is missing or has another shape.
        """
        saved = state["params"]
        for name, p in self.params.items():
            if name not in saved:
                raise CheckpointError(f"{self.name}: checkpoint has no parameter {name!r}: it is of another network")
            if tuple(saved[name].shape) != tuple(p.shape):
                raise CheckpointError(
                    f"{self.name}: parameter {name!r} has shape {tuple(saved[name].shape)} in the checkpoint, "
                    f"{tuple(p.shape)} here; it is of another network"
                )
        for name, p in self.params.items():
            runtime.assign(p, saved[name])
        for name, (_, normalizer) in self._normalizers.items():
            normalizer.moments.load_state_dict(state["moments"][name])
        restore_generator(self.act_rng, state["rng"]["act"])
        restore_generator(self.learn_rng, state["rng"]["learn"])


def _find_normalizers(root: Any) -> dict[str, tuple[int, Normalizer]]:
    """(number of its observation leaf, normalizer) of every encoder under `root`, by path."""
    encoders = [(path, cell) for path, cell in root.cells_and_names() if isinstance(cell, ObsEncoder)]
    return {f"{path}.{k}": (k, normalizer) for path, encoder in encoders for k, normalizer in encoder.normalizers()}


def leaf_name(prefix: str, leaf: Leaf) -> str:
    return f"{prefix}.{leaf.path}" if leaf.path else prefix
