"""Actors: from observations to actions, in NumPy and without MindSpore.

An actor owns a network (in NumPy or a compiled graph), the random stream of acting and, if the network has a memory,
the memory of each environment. An actor with a NumPy network can be pickled. It acts in the floating-point mode of
`engine.process.floats` in every process.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.actions import ActionAdapter, random_actions
from minding.engine.data.observation import masked_obs, observation_leaves, without_legal
from minding.engine.errors import MindingError, ShapeError
from minding.engine.process.floats import flush_denormals
from minding.engine.search.gumbel import GumbelOptions
from minding.engine.search.learned import Plan, Predicted, plan
from minding.engine.seeding import generator_state, restore_generator
from minding.engine.types import Array, ObsLike, StateDict
from minding.policies.acting.memory import Memory
from minding.policies.acting.numpy_layers import ILLEGAL, Outputs
from minding.policies.acting.sampling import ActionNoise, Distribution, NoiseDraw, weight_noise

Network = Callable[[Sequence[Array]], Outputs]
"""Observation leaves, ``(B, ...)`` each, to the outputs of an acting network.

A network that draws takes a further leaf of random numbers to explore with, ``(B, S)``, such as the noise of noisy
layers; without this leaf, it uses means or the likeliest values. A network with a memory takes the memory, ``(B, S)``,
as the last leaf and returns the new memory as the last output.
"""


class Actor:
    """Base of actors. A subclass defines `explore` and `decide`."""

    record_fields: tuple[str, ...] = ()
    memory: Memory | None = None
    noise_size = 0
    draw_noise: NoiseDraw = staticmethod(weight_noise)
    remembers_action = False
    sees_state = False

    def __init__(self, name: str, network: Network, spec: Mapping[str, Any], rng: np.random.Generator) -> None:
        self.name = name
        self.network = network
        self.space = dict(spec["action"])
        self.adapter = ActionAdapter(spec["env_action"])
        self.rng = rng
        leaves = observation_leaves(spec["observation"])
        self._expected = {leaf.path: tuple(leaf.field.shape) for leaf in leaves}
        self._mask_path = next((leaf.path for leaf in leaves if leaf.is_mask), None)
        # For an observation that is a single array: its shape without, and number of dimensions with, the batch axis.
        self._plain = self._expected.get("")
        self._ndim = len(self._plain or ()) + 1

    # Defined by subclasses.

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        """Returns 'action' and the arrays of `record_fields`; `mask`: bool ``(B, A)``, for actions that are not chosen
        by the outputs, None if all are legal."""
        raise NotImplementedError

    def decide(self, outputs: Outputs) -> Array:
        """Returns the actions without exploration, in the policy's own units; draws nothing."""
        raise NotImplementedError

    def evaluate(self, outputs: Outputs) -> Array:
        """Returns the actions of an evaluation, in the policy's own units."""
        return self.decide(outputs)

    # Used by the modes.

    @flush_denormals
    def collect(self, obs: ObsLike, *, random: bool = False, **collect_kwargs: Any) -> dict[str, Array]:
        """Acts with exploration, in the policy's own units; with `random`, uniformly over the (legal) actions. An actor
        with memory updates it with the observations, and with the action if `remembers_action`. It records the memory
        before the update as 'memory'."""
        mask = None
        if self._mask_path is not None:
            mask = obs_trees.named(obs)[self._mask_path]
        outputs, before = self._next_outputs(obs, explore=True)
        record = self.explore(outputs, mask, **collect_kwargs)
        if random:
            record["action"] = self.random_action(len(record["action"]), mask)
        if before is not None:
            record["memory"] = before
        if self.remembers_action:
            self._remember(record["action"])
        return record

    @flush_denormals
    def act(self, obs: ObsLike, action_mask: Array | None = None) -> Array:
        """Acts as evaluations do, in the environment's units; an actor with memory updates it with the observations.
        `action_mask`: bool ``(B, A)``, needed if `obs` does not contain the mask."""
        if action_mask is not None:
            obs = self._with_mask(obs, np.asarray(action_mask))
        return self.adapter(self.evaluate(self._next_outputs(obs)[0]))

    def explore_as(self, obs: ObsLike, **collect_kwargs: Any) -> Array:
        """Acts as `collect` does, in the environment's units."""
        return self.adapter(self.collect(obs, **collect_kwargs)["action"])

    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        """State value float32 ``(B,)`` of observations ``(B, ...)``, which do not change the memory; `memory`: float32
        ``(B, S)``, the one before the observations; None: the current one."""
        raise MindingError(f"{self.name} has no state value; gae_estimator fits actor-critic policies such as PPO")

    def take_reward(self, reward: Array) -> None:
        """Takes note of the rewards ``(N,)`` of the last actions, in the environment's units; does nothing for actors
        whose actions do not depend on rewards."""

    def takes(self, path: str) -> bool:
        """Whether observations have a leaf at this path."""
        return path in self._expected

    @property
    def newest_memory(self) -> Array | None:
        """The current memory, ``(N, S)``; None if the network has no memory, and before the first observations."""
        return None if self.memory is None else self.memory.newest

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Clears the memory of these environments, or of all; does nothing for actors without memory."""
        if self.memory is not None:
            self.memory.forget(env_ids)

    def state_dict(self) -> StateDict:
        """The random stream and the memory."""
        return {"rng": generator_state(self.rng), "memory": None if self.memory is None else self.memory.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        restore_generator(self.rng, state["rng"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"])

    # Shared by subclasses.

    def outputs(self, obs: ObsLike, memory: Array | None = None, *, explore: bool = False) -> Outputs:
        """The network's outputs for a batch of observations ``(B, ...)``, an array, a FastTreeValue, or dicts and
        tuples nested as in the space; changes nothing except, with `explore`, the random stream. For `memory` see
        `value`."""
        leaves: Sequence[Array]
        if isinstance(obs, np.ndarray) and obs.ndim == self._ndim and obs.shape[1:] == self._plain:
            leaves = (obs,)
        else:
            leaves = self._leaves(obs)
        if explore and self.noise_size:
            leaves = (*leaves, self.draw_noise((len(leaves[0]), self.noise_size), self.rng))
        if self.memory is None:
            return self.network(leaves)
        return self.network((*leaves, self.memory.rows(len(leaves[0])) if memory is None else memory))

    def _next_outputs(self, obs: ObsLike, *, explore: bool = False) -> tuple[Outputs, Array | None]:
        """The outputs for the next observation of each environment, and the memory before it."""
        outputs = self.outputs(obs, explore=explore)
        if self.memory is None:
            return outputs, None
        before = self.memory.rows(len(outputs[0]))
        self.memory.write(outputs[-1])
        return outputs[:-1], before

    def _remember(self, action: Array) -> None:
        """Writes actions ``(N, ...)`` into the memory, in place of the actions that the network chose."""
        assert self.memory is not None
        rows, taken = self.memory.rows(len(action)), self._action_rows(action)
        self.memory.write(np.concatenate([rows[:, : -taken.shape[1]], taken], axis=1))

    def _action_rows(self, action: Array) -> Array:
        """Actions ``(N, ...)`` as rows of float32 numbers."""
        if self.space["kind"] == "discrete":
            return np.eye(self.space["n"], dtype=np.float32)[action]
        if self.space["kind"] == "multi_discrete":
            hot = [np.eye(n, dtype=np.float32)[action[:, k]] for k, n in enumerate(self.space["nvec"])]
            return np.concatenate(hot, axis=1)
        return action.reshape(len(action), -1).astype(np.float32, copy=False)

    def _leaves(self, obs: ObsLike) -> list[Array]:
        """The arrays of an observation in the network's order, all with a batch axis of the same length."""
        given = {path: np.asarray(leaf) for path, leaf in obs_trees.named(obs).items()}
        batches = {leaf.shape[:1] for leaf in given.values()}
        fits = given.keys() == self._expected.keys() and all(
            given[path].ndim == len(shape) + 1 and given[path].shape[1:] == shape
            for path, shape in self._expected.items()
        )
        if fits and len(batches) == 1:
            return [given[path] for path in self._expected]
        shapes = {path: leaf.shape for path, leaf in given.items()}
        single = all(leaf.shape == self._expected.get(path) for path, leaf in given.items())
        hint = "; for a single observation add the batch axis: obs[None]" if single else ""
        raise ShapeError(
            f"observation for {self.name}: expected {_batched(self._expected)}, one row per environment, got "
            f"{_named(shapes)}{hint}"
        )

    def _with_mask(self, obs: ObsLike, mask: Array) -> ObsLike:
        if self._mask_path is None:
            raise ShapeError(
                f"action_mask for {self.name}: the environment it was trained in has none; declare it with "
                "env.info_keys=[action_mask]"
            )
        counts = self.space.get("nvec", [self.space.get("n")])
        if mask.ndim != 2 or mask.shape[1] != sum(counts) or mask.dtype.kind not in "biu":
            raise ShapeError(
                f"action_mask for {self.name}: expected bool (N, {sum(counts)}), got {mask.dtype} {mask.shape}"
            )
        stuck = without_legal(mask.astype(bool), counts)
        if stuck.any():
            raise ShapeError(f"action_mask for {self.name}: row {int(stuck.argmax())} allows no action")
        return masked_obs(obs, mask, self._expected)

    def random_action(self, count: int, mask: Array | None = None) -> Array:
        """Draws `count` actions uniformly; given a mask ``(count, A)``, only legal ones."""
        return random_actions(self.space, (count,), self.rng, mask)

    def partly_random(self, action: Array, mask: Array | None, eps: float) -> Array:
        """The actions ``(B, ...)``, each replaced in place by a random legal one with probability `eps`."""
        if eps > 0.0:
            explore = (self.rng.random(len(action)) < eps).nonzero()[0]
            # Drawing an action takes longer than computing the network's outputs.
            if len(explore):
                action[explore] = self.random_action(len(explore), None if mask is None else mask[explore])
        return action

    def shaped(self, action: Array) -> Array:
        """Flat Box actions ``(B, A)`` in the space's own shape; others unchanged."""
        return action.reshape(-1, *self.space["shape"]) if self.space["kind"] == "box" else action


def _batched(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The shapes with a batch axis N, as text."""
    return _named({path: f"(N{''.join(f', {size}' for size in shape) or ','})" for path, shape in shapes.items()})


def _named(shapes: Mapping[str, Any]) -> str:
    return ", ".join(f"{path} {shape}" if path else str(shape) for path, shape in shapes.items()) or "nothing"


class GreedyActor(Actor):
    """The action of the highest value, or with probability `eps` a uniformly random one.

    Network outputs: action values ``(B, n)``.
    """

    def explore(
        self, outputs: Outputs, mask: Array | None = None, *, eps: float = 0.0, **collect_kwargs: Any
    ) -> dict[str, Array]:
        return {"action": self.partly_random(self.decide(outputs), mask, eps)}

    def decide(self, outputs: Outputs) -> Array:
        return outputs[0].argmax(axis=-1)


class ValuingActor(GreedyActor):
    """A `GreedyActor` that also records the value of the action it takes, `q_value`, and the highest one, `value`."""

    record_fields = ("q_value", "value")

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        record = super().explore(outputs, mask, **collect_kwargs)
        record["q_value"] = outputs[0][np.arange(len(outputs[0])), record["action"]]
        record["value"] = outputs[0].max(axis=-1)
        return record

    @flush_denormals
    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        highest: Array = self.outputs(obs, memory)[0].max(axis=-1)
        return highest


class SamplingActor(Actor):
    """Draws from a distribution, and records the log-probability if it is one of `record_fields`.

    Network outputs: the parameters of `distribution`.
    """

    first_draw: StateDict | None = None
    """State of the random stream with which each evaluation begins; None: evaluations take the likeliest action."""

    def __init__(
        self,
        name: str,
        network: Network,
        spec: Mapping[str, Any],
        rng: np.random.Generator,
        distribution: Distribution,
        record_fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, network, spec, rng)
        self.distribution, self.record_fields = distribution, record_fields

    def params(self, outputs: Outputs) -> Outputs:
        """The outputs that are the parameters of `distribution`."""
        return outputs

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        params = self.params(outputs)
        if "log_prob" not in self.record_fields:
            return {"action": self.shaped(self.distribution.draw(params, self.rng))}
        action, log_prob = self.distribution.sample(params, self.rng)
        return {"action": self.shaped(action), "log_prob": log_prob}

    def decide(self, outputs: Outputs) -> Array:
        return self.shaped(self.distribution.mode(self.deciding(outputs)))

    def evaluate(self, outputs: Outputs) -> Array:
        if self.first_draw is None:
            return self.decide(outputs)
        return self.shaped(self.distribution.draw(self.deciding(outputs), self.rng))

    def deciding(self, outputs: Outputs) -> Outputs:
        """The parameters of `distribution` without what only learning needs."""
        return self.params(outputs)

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Clears the memory of these environments; with all of them, an evaluation begins, which draws the same numbers
        as the last one."""
        super().reset(env_ids)
        if env_ids is None and self.first_draw is not None:
            restore_generator(self.rng, self.first_draw)

    @flush_denormals
    def log_prob(self, obs: ObsLike, action: Array) -> Array:
        """Log-probability of actions in the policy's units, float32 ``(B,)``; changes nothing."""
        return self.distribution.log_prob(self.params(self.outputs(obs)), action)


class ReturnActor(SamplingActor):
    """A `SamplingActor` whose memory begins with the rewards of the episode so far, and ends with the last action."""

    remembers_action = True

    def take_reward(self, reward: Array) -> None:
        assert self.memory is not None
        rows = self.memory.rows(len(reward)).copy()
        rows[:, 0] += reward
        self.memory.write(rows)


class StochasticActor(SamplingActor):
    """A `SamplingActor` that also records the state's value, if learning uses it.

    Network outputs: value ``(B,)``, then the parameters of `distribution`.
    """

    def params(self, outputs: Outputs) -> Outputs:
        return outputs[1:]

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        record = super().explore(outputs, mask, **collect_kwargs)
        return {**record, "value": outputs[0]} if "value" in self.record_fields else record

    @flush_denormals
    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        return self.outputs(obs, memory)[0]


class NoisyActor(Actor):
    """Adds noise to Box actions and clips the sum to [-1, 1]; the noise belongs to the actor's state.

    Network outputs: actions ``(B, A)`` in [-1, 1].
    """

    def __init__(
        self, name: str, network: Network, spec: Mapping[str, Any], rng: np.random.Generator, noise: ActionNoise
    ) -> None:
        super().__init__(name, network, spec, rng)
        self.noise = noise

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        action = outputs[0] + self.noise.draw(outputs[0].shape, self.rng)
        return {"action": self.shaped(np.clip(action, -1.0, 1.0, out=action))}

    def decide(self, outputs: Outputs) -> Array:
        return self.shaped(outputs[0])

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Clears the memory of these environments, or of all, and restarts the noise in them."""
        super().reset(env_ids)
        self.noise.reset(env_ids)

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "noise": self.noise.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.noise.load_state_dict(state["noise"])


class ParametrisedActor(NoisyActor):
    """The choice of the highest value with the actor's numbers and noise, or with probability `eps` a uniformly random
    action; the noise does not change the choice.

    Network outputs: values of the choices ``(B, n)``, numbers ``(B, A)`` in [-1, 1].
    """

    def explore(
        self, outputs: Outputs, mask: Array | None = None, *, eps: float = 0.0, **collect_kwargs: Any
    ) -> dict[str, Array]:
        action = self.decide(outputs)
        action[:, 1:] += self.noise.draw(outputs[1].shape, self.rng)
        np.clip(action[:, 1:], -1.0, 1.0, out=action[:, 1:])
        return {"action": self.partly_random(action, mask, eps)}

    def decide(self, outputs: Outputs) -> Array:
        chosen = outputs[0].argmax(axis=-1)
        return np.concatenate([chosen[:, None], outputs[1]], axis=1, dtype=np.float32)


class PredictingActor(SamplingActor):
    """A `SamplingActor` that also predicts a policy and a value for search.

    Network outputs: logits ``(B, A)``, value ``(B,)``.
    """

    def params(self, outputs: Outputs) -> Outputs:
        return outputs[:1]

    @flush_denormals
    def predict(self, obs: ObsLike) -> dict[str, Array]:
        logits, value = self.outputs(obs)
        return {"logits": logits, "value": value}

    @flush_denormals
    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        return self.outputs(obs, memory)[1]


def predict_with(actor: object, obs: ObsLike) -> dict[str, Array]:
    """Predictions of an actor for search, see `engine.types.Predicts`."""
    if not isinstance(actor, PredictingActor):
        raise MindingError(
            f"{getattr(actor, 'name', 'the policy')} predicts no policy and value for search: use alphazero"
        )
    return actor.predict(obs)


class PlanningActor(Actor):
    """Searches the learned model in all environments at once, and takes the best action that the search found. When
    exploring, the search draws Gumbel noise at the root; the improved policy is recorded as `search_policy`. A share of
    the actions is uniformly random instead, and recorded as `strayed`.

    Network outputs: see `muzero.PlanningNetwork`.
    """

    record_fields = ("search_policy", "strayed")

    def __init__(
        self,
        name: str,
        network: Network,
        spec: Mapping[str, Any],
        rng: np.random.Generator,
        options: GumbelOptions,
        gamma: float,
        random_share: float,
    ) -> None:
        super().__init__(name, network, spec, rng)
        self.options, self.gamma, self.random_share = options, gamma, random_share
        self._table = np.eye(spec["action"]["n"], dtype=np.float32)

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        found = self.search(outputs, self.rng.gumbel(size=outputs[0].shape))
        action = self.partly_random(found.best.copy(), mask, self.random_share)
        strayed = (action != found.best).astype(np.float32)
        return {"action": action, "search_policy": found.policy.astype(np.float32), "strayed": strayed}

    def decide(self, outputs: Outputs) -> Array:
        return self.search(outputs, None).best

    def search(self, outputs: Outputs, noise: Array | None) -> Plan:
        """The search from the network's outputs for n observations, with Gumbel noise ``(n, A)`` or without."""
        logits, value, latent, reward = outputs
        legal = logits > 0.5 * ILLEGAL if self._mask_path is not None else None
        return plan(
            Predicted(latent, reward, logits, value), self._step, self.options, self.gamma, legal=legal, noise=noise
        )

    def _step(self, latent: Array, action: Array) -> Predicted:
        rows = np.concatenate([latent, self._table[action]], axis=1)
        # More leaves than those of an observation, of which the last one counts.
        logits, value, later, reward = self.network((rows,) * (len(self._expected) + 1))
        return Predicted(later, reward, logits, value)

    @flush_denormals
    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        return self.outputs(obs, memory)[1]
