"""Policies whose rows are transitions of a whole team, and Q-learning for teams from whole episodes."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from minding.engine.buffers import SequenceBatch
from minding.engine.data.agent_axis import ALIVE, with_identity
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.data.observation import Leaf, leaf_name, observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.acting.actors import GreedyActor, Network
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import equalize, make_target, target_schedule
from minding.policies.networks.layers import Cells
from minding.policies.networks.team_networks import AgentQNetwork, TeamPlaces, team_fields, team_parts, team_places
from minding.policies.ops import primitives
from minding.policies.ops.values import accumulated, chosen_atoms, chosen_value


class SeparateAgents(BasePolicy):
    """A policy of several agents whose acting network chooses the network of each observation's agent by its number."""

    @property
    def acting_spec(self) -> dict[str, Any]:
        """The description of the environment for actors, whose observation includes the agent number."""
        return {**self.spec, "observation": with_identity(self.spec["observation"], self.spec["num_agents"])}

    @property
    def acting_leaves(self) -> list[Leaf]:
        return observation_leaves(self.acting_spec["observation"])


class TeamPolicy(BasePolicy):
    """Learns for several agents from rows that hold all of them.

    A subclass defines the methods that `BasePolicy` leaves open, except `row_fields`.
    """

    @property
    def agents(self) -> int:
        """Number of agents, M."""
        return len(self.spec["agents"]["names"])

    @property
    def places(self) -> TeamPlaces:
        """The places of the parts of the joint observation in rows."""
        return team_places(self.spec)

    def obs_fields(self, prefix: str) -> dict[str, Field]:
        """Row fields of the joint observation: the agents' leaves, which agents are present, and the state if learning
        uses it."""
        return {f"{prefix}.{path}": field for path, field in team_fields(self.spec).items()}

    @property
    def row_fields(self) -> dict[str, Field]:
        action = self.action_field
        return {
            **self.obs_fields("obs"),
            **self.obs_fields("next_obs"),
            "action": Field((self.agents, *action.shape), action.dtype),
            "reward": Field(() if self.spec["agents"]["team_reward"] else (self.agents,)),
            "terminated": Field(),
        }

    @property
    def observed_fields(self) -> set[str]:
        return {*super().observed_fields, f"obs.{ALIVE}"}

    def observations(self, field: str, rows: Mapping[str, Array]) -> Array:
        """The observations in a field: of the agents' own ones only those of agents that are present."""
        own = {leaf_name("obs", leaf) for leaf in self.leaves}
        return rows[field][rows[f"obs.{ALIVE}"]] if field in own else rows[field]


class TeamQLearning(GradientStep):
    """Root cell: agents' network, mixer, the targets of both, and optimizer. A subclass defines `loss`."""

    metrics: tuple[str, ...] = ("loss", "q_value", "grad_norm")

    def __init__(
        self,
        nets: tuple[AgentQNetwork, AgentQNetwork],
        mixers: tuple[nn.Cell, nn.Cell] | None,
        learn: Mapping[str, Any],
        places: TeamPlaces,
    ) -> None:
        super().__init__()
        self.net, self.target = nets
        self.mixer: Any
        self.target_mixer: Any
        self.mixer, self.target_mixer = mixers if mixers is not None else (None, None)
        online, target = Cells(self.net, self.mixer), Cells(self.target, self.target_mixer)
        equalize(online, target)
        group = Group.of(online, learn, max_grad_norm=learn["grad_norm"])
        self.optim = Optimizer(net=group)
        self.move_target = make_target(online, target, self.optim.block("net"), learn["target"]["kind"])
        self.agents, self.places = self.net.agents, tuple(places)
        self.gamma, self.double = float(learn["gamma"]), bool(learn["double"])
        self.td_lambda = float(learn["td_lambda"])
        self.gradient = self.optim.gradient(self.loss, "net")

    # Defined by the algorithm.

    def loss(self, batch):
        """The loss and, by name, `loss` and `q_value`."""
        raise NotImplementedError

    # Shared by the algorithms.

    def construct(self, batch):
        # Target
        known = self.known(batch)
        # Loss
        (_, metrics), grads = self.gradient(known)
        # Update
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        self.move_target(batch["tau"], metrics["grad_norm"])
        return metrics

    def known(self, batch):
        """The inputs of the loss, without gradient, for T steps of B episodes of M agents, ordered by time.

        Args:
          batch: by name: the fields of the rows, (T B, ...), and `filled`, float32 (T, B), 0 for rows that are padding
            after an episode's end.

        Returns:
          By name:
          - `leaves`: leaves of the T + 1 observations, ((T + 1) B M, ...) each;
          - `there`: float32 (T B, M), 1 for agents that act in the row, 0 in padding;
          - `there_then`: float32 (T B, M), 1 for agents that are present after the row;
          - `state`, `state_then`: leaves of the state before and after the row, (T B, ...) each; empty without a state;
          - `action`: int32 (T B M,);
          - `target_q`: values of the target network, float32 ((T + 1) B M, A);
          - `reward`: float32 (T B,), or (T B, M) if each agent has its own reward;
          - `decay`: gamma (1 - terminated), float32 (T B,);
          - `filled`: as in `batch`.
        """
        filled = batch["filled"]
        now, then = team_parts(batch["obs"], self.places), team_parts(batch["next_obs"], self.places)
        leaves: Any = ()
        for k in range(len(now["own"])):
            leaves = (*leaves, self.observed(primitives.item(now["own"], k), primitives.item(then["own"], k), filled))
        leaves = primitives.as_rows(leaves)
        action = ops.Reshape()(batch["action"], (-1,))
        return {
            "leaves": leaves,
            "there": now["alive"] * ops.Reshape()(filled, (-1, 1)),
            "there_then": then["alive"],
            "state": now["state"],
            "state_then": then["state"],
            "action": action,
            "target_q": self.target.unroll(leaves, action),
            "reward": batch["reward"],
            "decay": self.gamma * (1.0 - batch["terminated"]),
            "filled": filled,
        }

    def observed(self, x, following, filled):
        """All observations of episodes: one per row, then the one after the last row, repeated as padding; from those
        of rows and of their successors, (T B, ...), and `filled`, float32 (T, B), 0 for padding."""
        rows, episodes = x.shape[0], filled.shape[1]
        shape: Any = (rows,)
        for _ in x.shape[1:]:
            shape = (*shape, 1)
        kept = ops.BroadcastTo(x.shape)(ops.Reshape()(filled > 0.0, shape))
        seen = ops.Select()(kept, x, following)
        return ops.Concat(0)((seen, primitives.part(following, rows - episodes, episodes)))

    def values(self, batch):
        """Values (T B, M) of the actions taken, and the target network's values (T B, M) of the best next actions."""
        q, rows = self.net.unroll(batch["leaves"], batch["action"]), batch["action"].shape[0]
        ahead = q.shape[0] - rows
        target_q = primitives.part(batch["target_q"], ahead, rows)
        choosing = ops.stop_gradient(primitives.part(q, ahead, rows)) if self.double else target_q
        best = chosen_value(target_q, ops.Argmax(-1)(choosing))
        done = chosen_value(primitives.part(q, 0, rows), batch["action"])
        return ops.Reshape()(done, (-1, self.agents)), ops.Reshape()(best, (-1, self.agents))

    def targets(self, reward, decay, following, filled):
        """The targets of the values: lambda-returns of each episode, without gradient.

            y_t = r_t + decay_t ((1 - lambda) v_{t+1} + lambda y_{t+1}),   y = v after the last row

        Args:
          reward, decay: float32 (T B,), or (T B, M) if each agent has its own value; decay is 0 where the next value
            does not count.
          following: v_{t+1}, the value of the successor, float32 (T B,) or (T B, M).
          filled: float32 (T, B), 0 for padding.
        """
        if self.td_lambda == 0.0:
            return ops.stop_gradient(reward + decay * following)
        steps, episodes = filled.shape
        inner = ops.Concat(0)((primitives.part(filled, 1, steps - 1), ops.ZerosLike()(primitives.part(filled, 0, 1))))
        own = following.shape[1:]
        trace = self.td_lambda * decay * ops.Reshape()(inner, (-1, *[1 for _ in own]))
        once = reward + (decay - trace) * following
        shape = (steps, episodes, *own)
        returns = accumulated(ops.Reshape()(once, shape), ops.Reshape()(trace, shape))
        return ops.stop_gradient(ops.Reshape()(returns, following.shape))

    def team_loss(self, value, following, batch):
        """The mean squared error of the team's values of rows, float32 (T B,), by those of their successors (T B,), and
        the metrics."""
        filled = batch["filled"]
        error = value - self.targets(batch["reward"], batch["decay"], following, filled)
        loss = mean_of_steps(ops.Square()(error), filled)
        return loss, {"loss": loss, "q_value": mean_of_steps(value, filled)}


class JointQLearning(TeamQLearning):
    """Root cell of algorithms that also learn an unrestricted value of joint actions, from which targets bootstrap.

    Their `mixer` holds it as its attribute ``joint``, a `JointValue`, beside what restricts the values of the agents
    that act; of the mixer's target only ``joint`` is read. A subclass defines `loss`.
    """

    def joint_values(self, batch):
        """The values that a loss compares, by name, for the rows of a batch.

        Returns:
          By name:
          - `done`, `best`: values of the agents' actions and of their best actions, float32 (T B, M), 0 for agents
            that do not act;
          - `is_best`: float32 (T B,), 1 if each agent that acts takes its best action;
          - `values`: values of all actions, float32 (T B, M, A), `ILLEGAL` where the mask forbids the action;
          - `features`: those of all actions for the joint value, float32 (T B, M, A, K);
          - `joint`: the joint value of the actions, float32 (T B,);
          - `joint_best`: that of the best actions, float32 (T B,), without gradient;
          - `target`: y_t, float32 (T B,), without gradient.
        """
        leaves, action, there, state = batch["leaves"], batch["action"], batch["there"], batch["state"]
        q, each = self.net.unroll(leaves, action), self.mixer.joint.net.unroll(leaves, action)
        rows = action.shape[0]
        ahead = q.shape[0] - rows
        now, each_now = primitives.part(q, 0, rows), primitives.part(each, 0, rows)
        chosen = ops.Argmax(-1)(ops.stop_gradient(now))
        choosing = q if self.double else batch["target_q"]
        following = ops.Argmax(-1)(ops.stop_gradient(primitives.part(choosing, ahead, rows)))
        each_then = primitives.part(self.target_mixer.joint.net.unroll(leaves, action), ahead, rows)
        target = self.target_mixer.joint(
            self.features_of_teams(each_then, following, batch["there_then"]), batch["state_then"]
        )
        differs = there * self.of_teams(ops.Cast()(ops.NotEqual()(chosen, action), ms.float32))
        joint_best = self.mixer.joint(self.features_of_teams(each_now, chosen, there), state)
        return {
            "done": there * self.of_teams(chosen_value(now, action)),
            "best": there * self.of_teams(chosen_value(now, chosen)),
            "is_best": 1.0 - ops.ReduceMax()(differs, -1),
            "values": ops.Reshape()(now, (-1, self.agents, now.shape[-1])),
            "features": ops.Reshape()(each_now, (-1, self.agents, *each_now.shape[1:])),
            "joint": self.mixer.joint(self.features_of_teams(each_now, action, there), state),
            "joint_best": ops.stop_gradient(joint_best),
            "target": self.targets(batch["reward"], batch["decay"], target, batch["filled"]),
        }

    def features_of_teams(self, features, action, there):
        """The input of a `JointValue`, (R, M K): features (R M, A, K) of the actions taken, int32 (R M,), 0 for an
        agent that is not there, float32 (R, M)."""
        taken = ops.Reshape()(chosen_atoms(features, action), (*there.shape, -1))
        return ops.Reshape()(ops.ExpandDims()(there, -1) * taken, (there.shape[0], -1))

    def of_teams(self, x):
        """One row per team: (R M,) -> (R, M)."""
        return ops.Reshape()(x, (-1, self.agents))


def mean_of_steps(x, filled):
    """The mean of (T B,) over the steps that are not padding; `filled`: float32 (T, B), 0 for padding."""
    return total(filled / total(filled) * ops.Reshape()(x, filled.shape))


def total(x):
    """The sum of (T, B, ...), first over time, so that padding of episodes does not change the order in which the other
    numbers are added, and the result stays bit-identical."""
    for _ in x.shape:
        x = ops.ReduceSum()(x, 0)
    return x


class TeamValuePolicy(TeamPolicy):
    """Each agent takes the action of its highest value or, with probability `eps`, a random legal one.

    A row is a transition of the whole team. A subclass defines `step_class`.
    """

    network_class = AgentQNetwork
    mixer_class: ClassVar[Any] = None
    """The class of the network that mixes the agents' values; None without such a network."""
    sequences = True
    counts_steps = True
    root: TeamQLearning

    def make_root(self, net: Any, rng: np.random.Generator) -> TeamQLearning:
        nets, mixers = (net, self.make_network(rng)), None
        if self.mixer_class is not None:
            mixers = tuple(self.mixer_class(self.spec, self.cfg.model, rng) for _ in range(2))
        root: TeamQLearning = self.step_class(nets, mixers, self.cfg.learn, self.places)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        actor = GreedyActor(self.name, network, self.spec, rng)
        actor.remembers_action = True
        return actor

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        filled = batch.filled if isinstance(batch, SequenceBatch) else np.ones(batch.index.shape, np.bool_)
        tau = target_schedule(self.cfg.learn.target, self.learn_steps, len(batch.index))
        return Inputs({"filled": filled.astype(np.float32), "tau": tau}, self.constants(progress))
