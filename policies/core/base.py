"""The base of all policies: seeds, acting backends, the three modes, and state."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import cloudpickle
import numpy as np

from minding.engine.config.compiler import schema_defaults
from minding.engine.config.config import Config
from minding.engine.data.actions import action_field
from minding.engine.data.batch import VALID, Field, IndexedBatch, Recorded
from minding.engine.data.observation import Leaf, leaf_name, observation_leaves
from minding.engine.data.rewards import RewardScale
from minding.engine.errors import ConfigError, MindingError
from minding.engine.process.floats import flush_denormals
from minding.engine.process.runtime import nn, seeded
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, LearnOutput, StateDict
from minding.policies import Algorithm, algorithm_of, get_algorithm
from minding.policies.acting.actors import Actor, Network, SamplingActor
from minding.policies.core.acting_network import Acting, check_network
from minding.policies.core.modes import CollectView, EvalView, LearnView
from minding.policies.core.prepare_process import prepare
from minding.policies.core.weights import Weights
from minding.policies.learning.learners import DividedUpdate, is_main, learners_of
from minding.policies.learning.off_policy_evaluation import ActionValues, FittedQ
from minding.policies.learning.steps import SHIFT, GradientStep, Inputs
from minding.policies.learning.update import LearnGuard, Update
from minding.policies.networks.encoder import RandomShift
from minding.policies.networks.fused import fuse_layers

MODES = ("collect", "learn", "eval")


class _ActingRoot(nn.Cell):
    """Root of a policy that does not learn; its parameters have the same names as under a root that learns."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net


class BasePolicy:
    """Base of all policies. A subclass defines the methods under "Defined by the algorithm".

    Args:
      cfg: the compiled configuration (`compile_config`).
      modes: the modes to build. Without 'learn', the policy has no target networks and no optimizers.
      algorithm: description of the algorithm; by default the one that `policy.type` names.

    Attributes:
      net: the cell that acts, as a part of `root`, the cell with all state.
      weights: the parameters of `root` by name, and the moments of its observations.
      reward_scale: scaling of the rewards for learning.
      acting, actors: what acts, and one actor per acting mode, by mode name, with its own memory of its own
        environments.
    """

    name: str
    """Name of the algorithm. It is the configured name if the algorithm is a variant of this policy's own."""
    network_class: ClassVar[Any]
    """The class of the network that acts: ``network_class(spec, model, rng)``, unless `make_network` is overridden."""
    step_class: ClassVar[Any]
    """The class of the cell that learns: ``step_class(net, learn)``, unless `make_root` is overridden."""
    sequences: ClassVar[bool | None] = None
    """Whether learning takes sequences, see `LearnView.sequences`."""
    from_each_row: ClassVar[bool] = False
    """Whether these begin at each stored row equally often."""
    host_fields: ClassVar[tuple[str, ...]] = ()
    """Row fields that only `inputs` reads; gradient steps do not."""
    update_class: ClassVar[type[Update]] = Update
    """The class of the compiled gradient steps."""
    counts_steps: ClassVar[bool] = False
    """Whether the number of gradient steps, `learn_steps`, is part of the state."""

    def __init__(self, cfg: Config, modes: Sequence[str] = MODES, algorithm: Algorithm | None = None) -> None:
        unknown = set(modes) - set(MODES)
        if unknown:
            raise MindingError(f"{type(self).__name__}: modes are {', '.join(MODES)}; got {sorted(unknown)}")
        prepare(cfg)
        self.config = cfg
        self.cfg = cfg.policy
        self.name = cfg.policy.type
        self.spec: Mapping[str, Any] = cfg.env.spec
        self.modes = tuple(modes)
        self.algorithm = get_algorithm(self.name) if algorithm is None else algorithm
        own, kind = type(self).name, type(self)
        if kind.__module__ == f"minding.policies.{own}" and own not in (self.name, self.algorithm.variant_of):
            raise ConfigError(
                f"{kind.__name__} was given the settings of policy.type={self.name!r}: compile a preset of {own}, or "
                f"give policy.type={own}"
            )
        self.algorithm.check_actions(cfg.env.spec.action)
        self.algorithm.check_agents(self.spec)
        self.reward_scale = RewardScale(self.cfg.other.reward)
        streams = SeedStreams(cfg.seed)
        self.learn_rng, self.learn_steps = streams.generator("policy.learn"), 0
        self.leaves = observation_leaves(cfg.env.spec.observation)
        rng = streams.generator("policy.init")
        with seeded(cfg.seed, "policy"):
            self.net: Any = self.make_network(rng)
            check_network(self.net, self.name)
            if "learn" in self.modes:
                self.root = self.make_root(self.net, rng)
                pixels = self.cfg.model.augment
                self.root.augment = RandomShift(self.leaves, pixels) if pixels else None
                if cfg.run.gradient_stats:
                    self.root.optim.watch()
                self.undivided = self.update_class(self.root, f"{self.name}.learn", self.step_fields)
                self._update = self._divided_update(cfg.lanes.learners)
            else:
                self.root = _ActingRoot(self.net)
        # Done in every process, so that a worker's graph computes the same as the learner's.
        if not self.second_order:
            fuse_layers(self.root)
        self.weights = Weights(self.name, self.net, self.root)
        self.params, self.normalizers = self.weights.params, self.weights.normalizers
        self.acting = Acting(self)
        self.actors = self.acting.actors
        self._guard = LearnGuard(self.name, self.cfg.learn.on_nan, self)

    # Defined by the algorithm.

    def make_network(self, rng: np.random.Generator) -> Any:
        """Returns the network that acts, an `ActingNetwork`."""
        return self.network_class(self.spec, self.cfg.model, rng)

    def make_root(self, net: Any, rng: np.random.Generator) -> GradientStep:
        """Returns the cell that learns: it holds `net` as its attribute ``net``, and all other state."""
        root: GradientStep = self.step_class(net, self.cfg.learn)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> Actor:
        """Returns the actor that uses the outputs of the acting network and draws from `rng`; by default it draws
        actions from the distribution of the network's head."""
        return SamplingActor(self.name, network, self.spec, rng, self.net.head.distribution)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        """Returns the inputs of a batch's gradient steps besides its rows and weights: noise, and `constants`."""
        return Inputs(constants=self.constants(progress))

    @property
    def second_order(self) -> bool:
        """Whether gradient steps differentiate gradients of the network. Its layers then keep their plain form."""
        return False

    @property
    def acting_leaves(self) -> list[Leaf]:
        """The observation leaves that the acting network takes."""
        return self.leaves

    @property
    def row_fields(self) -> dict[str, Field]:
        """The fields of a row that learning reads, by default a transition; a replay buffer stores the same fields."""
        return self.transition_fields

    # Shared by the algorithms.

    def _divided_update(self, learners: int) -> Update | DividedUpdate:
        """The update, divided among this number of learners."""
        if learners == 1:
            return self.undivided
        self.algorithm.check_learners(learners)
        if self.root.watched is not None:
            why = f"with a limit of {self.root.watched}"
            raise ConfigError(f"lanes.learners={learners}: {self.name}, {why}, learns in one process only; use 1")
        others = learners_of(learners) if is_main() else None
        # Its operators belong to the group that exists when they are made.
        self.root.optim.average(learners)
        if others is None:
            return self.undivided
        return DividedUpdate(self.undivided, others, self, cloudpickle.dumps((type(self), self.config, self.algorithm)))

    @property
    def step_fields(self) -> tuple[str, ...]:
        """Names of the row fields that gradient steps read; a tree of fields has one name."""
        return tuple(dict.fromkeys(x.partition(".")[0] for x in self.row_fields if x not in self.host_fields))

    def constants(self, progress: float) -> dict[str, Array | float]:
        """The inputs that are the same for all gradient steps of a call: the learning rates, and the weight `tau` of
        soft targets if the algorithm has it."""
        tau = {"tau": float(self.cfg.learn.tau)} if "tau" in self.cfg.learn else {}
        return {**self.root.optim.rates(progress), **tau}

    # Modes. Each property returns the same object every time, so that pickling it twice at once gives one object.

    @functools.cached_property
    def collect_mode(self) -> CollectView:
        self._require("collect")
        return self.acting.view(CollectView)

    @functools.cached_property
    def learn_mode(self) -> LearnView:
        self._require("learn")
        observe = self.observe if self.normalizers else None
        return LearnView(
            self.learn, self.row_fields, self.root.prioritized, self.sequences, self.from_each_row, observe
        )

    @functools.cached_property
    def eval_mode(self) -> EvalView:
        self._require("eval")
        return self.acting.view(EvalView)

    @classmethod
    def config_schema(cls) -> dict[str, Any]:
        return algorithm_of(cls).config_schema()

    @classmethod
    def default_config(cls) -> Any:
        """The algorithm's defaults, the `policy` part of a configuration."""
        return schema_defaults(cls.config_schema())

    def _require(self, mode: str) -> None:
        if mode not in self.modes:
            raise MindingError(
                f"{type(self).__name__} was built for {', '.join(self.modes)}; {mode}_mode needs modes=(..., {mode!r})"
            )

    # Learning.

    @flush_denormals
    def learn(self, batch: IndexedBatch, progress: float | Array = 0.0) -> LearnOutput:
        """Makes the gradient steps of a batch in one compiled call: the `forward` of the learn mode.

        Args:
          batch: rows and, for each gradient step, their indices.
          progress: share of the run that is over, which drives schedules; clipped to [0, 1]. An array ``(K,)`` gives
            the share, and so the learning rate, of each step; other schedules use its first element.
        Raises:
          NonFiniteError: if the call ended in NaN or infinity, see `LearnGuard`.
        """
        shares = np.array(progress, ndmin=1).clip(0.0, 1.0).tolist()
        if batch.recorded is not None:
            self.take_recorded(batch.recorded)
        before = self._guard.state()
        inputs, optim = self.inputs(batch, shares[0]).rescaled(self.reward_scale), self.root.optim
        if self.root.augment is not None:
            shift = self.root.augment.draw(self.learn_rng, batch.index.shape)
            inputs = dataclasses.replace(inputs, steps={**inputs.steps, SHIFT: shift})
        self.learn_steps += len(batch.index)
        if len(shares) > 1:
            inputs = inputs.by_step(optim.step_rates(shares))
        output = self._update(batch, inputs)
        if self.normalizers and batch.recorded is None and not batch.stored:
            rows, read = self.observed(batch), batch.layout.read
            self.observe({name: read(batch.tables.host, name, rows) for name in self.observed_fields})
        more = {**optim.reported_rates(shares), **optim.take_statistics()}
        output = dataclasses.replace(output, metrics={**output.metrics, **more})
        return self._guard.checked(output, batch, before)

    # Evaluation on recorded data.

    def action_values(self, obs: Mapping[str, Array], action: Array) -> Array | None:
        """Q(s, a) under the current weights, float32 ``(n,)``, for rewards as scaled for learning, of observations
        ``(n, ...)`` by path and actions ``(n, ...)`` in the policy's own units; None if the algorithm has no Q."""
        self._require("learn")
        return None if self._values is None else self._values(obs, action)

    @functools.cached_property
    def _values(self) -> ActionValues | None:
        if not self.root.has_action_values:
            return None
        return ActionValues(self.root, [leaf.path for leaf in self.leaves], f"{self.name}.values")

    def fitted_q(self, gamma: float, limits: tuple[float, float]) -> FittedQ:
        """Fitted Q evaluation of this policy on recorded data, with the policy's current moments of observations, whose
        targets are clipped to `limits`, the lowest and highest possible value. MindingError if the actions are neither
        Discrete nor a Box."""
        if self.spec["action"]["kind"] not in ("discrete", "box"):
            raise MindingError("fitted Q evaluation needs Discrete or Box actions")
        fields = {**self.obs_fields("obs"), **self.obs_fields("next_obs"), "action": self.action_field}
        fitted = FittedQ(self.spec, self.cfg.model, fields, gamma, limits, self.config.seed)
        self.weights.give_moments(fitted.root)
        return fitted

    def observed(self, batch: IndexedBatch) -> Array:
        """The indices of the rows that were learned from, without empty rows of a buffer and resets of a rollout."""
        counted = self.counted(batch)
        return np.unique(batch.index if counted is None else batch.index[counted])

    def counted(self, batch: IndexedBatch) -> Array | None:
        """Which rows count, bool, shaped like the index: if rows have a field `VALID`, rows that are not resets;
        otherwise rows that are not padding of a minibatch. None: all rows."""
        valid = self.read(VALID, batch) if VALID in self.row_fields else batch.valid
        return None if valid is None else valid > 0

    def read(self, name: str, batch: IndexedBatch) -> Array:
        """A field of the rows of a batch, ``(*index.shape, ...)``."""
        return batch.layout.read(batch.tables.host, name)[batch.index]

    def take_recorded(self, recorded: Recorded) -> None:
        """Before the first step on recorded data, takes what follows from all of them."""
        self.reward_scale.take(recorded.returns)
        self.weights.take(recorded)

    @property
    def observed_fields(self) -> set[str]:
        """Names of the row fields that `observe` reads."""
        return {*self.weights.observed_fields}

    def observe(self, rows: Mapping[str, Array]) -> None:
        """Adds the observations of rows to the moments. Each visited row is to be counted once: on-policy algorithms
        count the rows that they have learned from, and learners from replay each row when it is stored.

        Args:
          rows: fields of rows ``(n, ...)`` by name, those of normalized observations among them.
        """
        self.weights.observe({field: self.observations(field, rows) for field in self.weights.observed_fields})

    def observations(self, field: str, rows: Mapping[str, Array]) -> Array:
        """The observations ``(m, ...)`` in a field of rows."""
        return rows[field]

    def obs_fields(self, prefix: str) -> dict[str, Field]:
        """Row fields of an observation, one per leaf."""
        return {leaf_name(prefix, leaf): leaf.field for leaf in self.leaves}

    @property
    def action_field(self) -> Field:
        return action_field(self.spec["action"])

    @property
    def transition_fields(self) -> dict[str, Field]:
        """Row fields of a transition, which one-step and n-step targets from replay need."""
        return {
            **self.obs_fields("obs"),
            **self.obs_fields("next_obs"),
            "action": self.action_field,
            "reward": Field(),
            "terminated": Field(),
            "discount": Field(default=self.cfg.learn.gamma),
        }

    # State.

    def state_dict(self) -> StateDict:
        """The state of `weights`, the scale of rewards, the random streams and, where they belong to it, the memory of
        collecting and the number of gradient steps."""
        steps = {"learn_steps": self.learn_steps} if self.counts_steps else {}
        return {
            **self.weights.state_dict(),
            "reward": self.reward_scale.state_dict(),
            "acting": self.actors["collect"].state_dict(),
            "rng": generator_state(self.learn_rng),
            **steps,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores a saved state, in place, so that compiled graphs use it; a policy built for fewer modes loads only
        the values that it needs.

        Raises:
          CheckpointError: it belongs to another network, see `Weights.load_state_dict`.
        """
        self.weights.load_state_dict(state)
        self.reward_scale.load_state_dict(state["reward"])
        self.actors["collect"].load_state_dict(state["acting"])
        restore_generator(self.learn_rng, state["rng"])
        if self.counts_steps:
            self.learn_steps = int(state["learn_steps"])

    def acting_arrays(self) -> tuple[dict[str, Array], str]:
        return self.weights.acting_arrays()

    def load_acting_arrays(self, arrays: Mapping[str, Array], network: str) -> None:
        self.weights.load_acting_arrays(arrays, network)
