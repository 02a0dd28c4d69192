"""Networks of teams: of agents that share their weights, of agents with separate weights, critics and mixers.

A row is a step of the whole team, (R, M, ...) for R rows and M agents; networks of agents take (R M, ...).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from minding.engine.data.agent_axis import ALIVE, IDENTITY, STATE, with_identity
from minding.engine.data.batch import Field
from minding.engine.data.observation import Leaf, leaf_name, observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions, numpy_networks
from minding.policies.networks.actor_critic import (
    BoundedActor,
    Decision,
    DeterministicActor,
    PolicyNetwork,
    SquashedActor,
)
from minding.policies.networks.encoder import ObsEncoder, make_encoder
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Composed, Linear, ScalarLinear, host_of
from minding.policies.networks.recurrent import make_memory
from minding.policies.ops import primitives


def team_fields(spec: Mapping[str, Any]) -> dict[str, Field]:
    """The fields of a team's joint observation, by path: the leaves of all agents except their numbers, `ALIVE` and, if
    learning uses it, the state."""
    agents, state = len(spec["agents"]["names"]), spec["agents"]["state"]
    own = [leaf for leaf in observation_leaves(spec["observation"]) if leaf.path != IDENTITY]
    fields = {leaf.path: Field((agents, *leaf.field.shape), leaf.field.dtype) for leaf in own}
    fields[ALIVE] = Field((agents,), "bool")
    leaves: list[Leaf] = [] if state is None else observation_leaves(state)
    return {**fields, **{leaf_name(STATE, leaf): leaf.field for leaf in leaves}}


class TeamPlaces(NamedTuple):
    """Indices of the parts of a joint observation among its leaves, see `team_fields`."""

    own: tuple[int, ...]
    alive: int
    state: tuple[int, ...]
    identity: int
    """The place of the agents' numbers among the agents' leaves, to which `team_parts` adds them; -1 without."""


def team_places(spec: Mapping[str, Any]) -> TeamPlaces:
    """The places of the parts in the order of `team_fields`."""
    paths = list(team_fields(spec))
    state = [path for path in paths if path.partition(".")[0] == STATE]
    own = [path for path in paths if path not in (ALIVE, *state)]
    leaves = [leaf.path for leaf in observation_leaves(spec["observation"])]
    identity = leaves.index(IDENTITY) if IDENTITY in leaves else -1
    return TeamPlaces(tuple(map(paths.index, own)), paths.index(ALIVE), tuple(map(paths.index, state)), identity)


def team_parts(obs, places):
    """The parts of a joint observation by name.

    Returns:
      A dict with `own`, the leaves of all agents, (R, M, ...) each; `alive`, float32 (R, M), 1 for agents that act;
      `state`, the leaves of the state, (R, ...) each, empty if learning does not use the state.
    """
    own: Any = ()
    for k in places[0]:
        own = (*own, primitives.item(obs, k))
    state: Any = ()
    for k in places[2]:
        state = (*state, primitives.item(obs, k))
    alive, identity = ops.Cast()(primitives.item(obs, places[1]), ms.float32), places[3]
    if identity >= 0:
        numbers = ops.Cast()(ops.CumSum()(ops.OnesLike()(alive), 1) - 1.0, ms.int32)
        own = (*own[:identity], numbers, *own[identity:])
    return {"own": own, "alive": alive, "state": state}


def of_agents(x, agents):
    """Repeats each number for all M agents: (R,) -> (R M,)."""
    return ops.Reshape()(ops.BroadcastTo((x.shape[0], agents))(ops.ExpandDims()(x, -1)), (-1,))


def one_hot(action, there, table):
    """Actions (R, M) as one-hot, (R, M, A), rows of the identity matrix `table`; 0 for absent agents."""
    return ops.Gather()(table, action, 0) * ops.ExpandDims()(there, -1)


def first_if_absent(action, there):
    """Actions (R, M) as (R M,), with action 0 for absent agents."""
    return ops.Reshape()(action * ops.Cast()(there, ms.int32), (-1,))


class AgentQNetwork(Composed, compositions.AgentQNetwork):
    """Action values (B, A) of agents, each from the observations and actions of that agent so far (Rashid et al., 2018,
    https://arxiv.org/abs/1803.11485, section 4.1).

        x = [o, one-hot of the last action],   h' = GRU(MLP(x), h),   Q = W h' + b

    The observation o includes the agent's number if `env.agent_ids` is on. An LSTM or a `GTrXL` may take the place of
    the GRU; without memory, h' = MLP(x).

    Takes the leaves of the observation and, as the last leaf, the memory rows, float32 (B, S + A): the state of the
    memory and the last action as one-hot, all zeros at the start of an episode. Returns the values and the new memory
    rows, which contain the action of the highest value; an actor that takes another action overwrites it. Values of
    actions that the mask forbids are `ILLEGAL`.
    """

    shared_outputs = ()
    noise_size = 0
    decision = Decision(0, "q_values")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, per_action: int = 1) -> None:
        super().__init__()
        self.agents, self.actions = len(spec["agents"]["names"]), spec["action"]["n"]
        self.encoder = make_encoder(spec["observation"], model, rng)
        features = self.encoder.out_features + self.actions
        self.torso = MLP.of(features, model, None, rng)
        self.memory: Any = make_memory(model, self.torso.out_features, rng, "gru")
        remembers = self.torso if self.memory is None else self.memory
        self.values = Linear(remembers.out_features, self.actions * per_action, None, rng)
        self.kept = 0 if self.memory is None else self.memory.size
        self.mask = action_mask(spec["observation"])
        self.action_table = ms.Tensor(np.eye(self.actions, dtype=np.float32))
        self.no_action, self.no_memory = (
            ms.Tensor(np.zeros((1, size), np.float32)) for size in (self.actions, max(self.kept, 1))
        )

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an agent, S + A."""
        return self.kept + self.actions

    def unroll(self, leaves, action):
        """Action values, float32 (T B M, A), of whole episodes: T steps of B episodes of M agents, from leaves,
        (T B M, ...) each, and the actions taken after all observations but the last, int32 ((T -
        1) B M,)."""
        total, done = leaves[0].shape[0], action.shape[0]
        count = total - done
        first = ops.Tile()(self.no_action, (count, 1))
        last = ops.Concat(0)((first, ops.gather(self.action_table, action, 0)))
        h = self.features(leaves, last)
        if self.memory is not None:
            begun = ops.Reshape()(ops.Slice()(ops.ZerosLike()(last), (0, 0), (total, 1)), (total,))
            h = self.memory.unroll(h, ops.Tile()(self.no_memory, (count, 1)), begun)
        return self.decided(h, leaves)


class AgentPolicy(AgentQNetwork):
    """An `AgentQNetwork` whose outputs (B, A) are logits of the agents' policies."""

    decision = Decision(0, "logits")


class CounterfactualCritic(nn.Cell):
    """Values (R M, A) of all A actions of each of the M agents, in R steps of a team."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, per_action: int = 1) -> None:
        super().__init__()
        self.agents, self.actions = len(spec["agents"]["names"]), spec["action"]["n"]
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.state = ObsEncoder(spec["agents"]["state"], model, rng, f"obs.{STATE}") if model.critic_state else None
        joint = self.agents * self.actions
        size = self.encoder.out_features + 2 * joint + self.agents
        if self.state is not None:
            size += self.state.out_features
        self.torso = MLP(size, model.critic_hidden, model.activation, None, rng, model.norm)
        self.values = Linear(self.torso.out_features, self.actions, None, rng)
        place = np.eye(self.agents, dtype=np.float32)
        self.place = ms.Tensor(place)
        # Masks the agent's own action, so that each agent's input has only the actions of the others.
        self.others = ms.Tensor(np.repeat(1.0 - place, self.actions, axis=1)[None])

    def construct(self, leaves, state, there, taken, last):
        """The values (R M, A), ordered by step and then by agent.

        Args:
          leaves: leaves of the observations of single agents, (R M, ...) each.
          state: leaves of the state, (R, ...) each.
          there: float32 (R, M), 1 for agents that act, else 0.
          taken, last: float32 (R, M, A), the agents' actions in this and in the last step as one-hot; 0 for absent
            agents.
        """
        count, joint = there.shape[0], self.agents * self.actions
        seen = self.encoder(leaves) * ops.Reshape()(there, (-1, 1))
        others = ops.Reshape()(taken, (count, 1, joint)) * self.others
        parts: Any = (seen,)
        if self.state is not None:
            parts = (*parts, self.of_each(self.state(state)))
        parts = (
            *parts,
            ops.Reshape()(others, (-1, joint)),
            self.of_each(ops.Reshape()(last, (count, joint))),
            ops.Tile()(self.place, (count, 1)),
        )
        return self.values(self.torso(ops.Concat(-1)(parts)))

    def of_each(self, x):
        """Repeats each row for all M agents: (R, D) -> (R M, D)."""
        size = x.shape[1]
        wide = ops.BroadcastTo((x.shape[0], self.agents, size))(ops.ExpandDims()(x, 1))
        return ops.Reshape()(wide, (-1, size))


class MonotonicMixer(nn.Cell):
    """The value of a team, which never falls when an agent's value rises (Rashid et al., 2018,
    https://arxiv.org/abs/1803.11485, section 4.1).

        Q_tot = |W_2(s)|^T elu(|W_1(s)|^T q + b_1(s)) + V(s)

    The weights are outputs of hypernetworks, whose input is the state s. W_1 and W_2 each have a hypernetwork with one
    hidden layer, b_1 has a linear layer, and V has a hypernetwork with one hidden layer of E units.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        team, size, hidden = spec["agents"], model.mixer_dim, [model.hypernet_dim]
        self.shape = (len(team["names"]), size)
        self.encoder = ObsEncoder(team["state"], model, rng, f"obs.{STATE}")
        state = self.encoder.out_features
        self.hidden = nn.CellList([MLP(state, layers, "relu", None, rng) for layers in (hidden, hidden, [size])])
        self.weight1 = Linear(hidden[0], self.shape[0] * size, None, rng)
        self.bias1 = Linear(state, size, None, rng)
        self.weight2 = Linear(hidden[0], size, None, rng)
        self.bias2 = ScalarLinear(size, None, rng)
        self.elu = ops.Elu()
        self.fused: ops.Primitive | None = None

    def construct(self, q, state):
        """Values (B,) for the agents' values (B, M) and the leaves of the state, (B, ...) each."""
        state = self.encoder(state)
        agents, size = self.shape
        weight1, weight2 = self.weight1(self.hidden[0](state)), self.weight2(self.hidden[1](state))
        bias1, bias2 = self.bias1(state), self.bias2(self.hidden[2](state))
        if self.fused is not None:
            return self.fused(q, weight1, bias1, weight2, bias2)
        each = ops.ExpandDims()(q, -1) * ops.Abs()(weight1).reshape((-1, agents, size))
        return ops.ReduceSum()(self.elu(ops.ReduceSum()(each, 1) + bias1) * ops.Abs()(weight2), -1) + bias2


class AgentFeatures(AgentQNetwork):
    """An `AgentQNetwork` that returns K numbers for each action, float32 (B, A, K), whether or not it is legal."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, size: int) -> None:
        super().__init__(spec, model, rng, size)
        self.size = size

    def decided(self, h, leaves):
        return ops.Reshape()(self.values(h), (-1, self.actions, self.size))


class JointValue(nn.Cell):
    """The value of a joint action, any function of the state and of features of the agents' actions (Rashid et al.,
    2020, https://arxiv.org/abs/2006.10800, section 4.1, with K = 1).

        Q(s, u) = MLP([s, f_1(u_1), ..., f_M(u_M)])

    The features f_m come from networks of the same form as those that act, with weights of their own: `net`.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, features: int = 1) -> None:
        super().__init__()
        self.net = AgentFeatures(spec, model, rng, features)
        self.encoder = ObsEncoder(spec["agents"]["state"], model, rng, f"obs.{STATE}")
        size = self.encoder.out_features + self.net.agents * features
        self.torso = MLP(size, model.joint_hidden, model.activation, None, rng, model.norm)
        self.value = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, features, state):
        """Values (B,) for the agents' features (B, M K) and the leaves of the state, (B, ...) each."""
        return self.value(self.torso(ops.Concat(-1)((self.encoder(state), features))))


class TeamStateValue(nn.Cell):
    """The value (B,) of the state of the whole environment, whose leaves are (B, ...) each; hidden layers as in
    `JointValue`."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = ObsEncoder(spec["agents"]["state"], model, rng, f"obs.{STATE}")
        self.torso = MLP(self.encoder.out_features, model.joint_hidden, model.activation, None, rng, model.norm)
        self.value = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, state):
        return self.value(self.torso(self.encoder(state)))


class AgentActors(nn.Cell):
    """A separate actor for each agent, which returns logits of discrete actions or continuous actions in [-1, 1].

    Takes the leaves of the observations of single agents, including `IDENTITY`, and returns the outputs of the agents'
    actors, (B, A) each. A subclass may have another `box_class`, the class of actors for continuous actions.
    """

    shared_outputs = ()
    memory_size = 0
    box_class: type[BoundedActor] | type[PolicyNetwork] = DeterministicActor

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        kind = self.box_class if spec["action"]["kind"] == "box" else PolicyNetwork
        agents = len(spec["agents"]["names"])
        self.nets = nn.CellList([kind(spec, model, rng) for _ in range(agents)])
        self.decision = self.nets[0].decision
        self.num_leaves = len(observation_leaves(spec["observation"]))
        leaves = observation_leaves(with_identity(spec["observation"], agents))
        self.place = [leaf.path for leaf in leaves].index(IDENTITY)
        self.table = ms.Tensor(np.eye(agents, dtype=np.float32))

    def construct(self, leaves):
        own = (*leaves[: self.place], *leaves[self.place + 1 :])
        who = ops.Gather()(self.table, ops.Reshape()(primitives.item(leaves, self.place), (-1,)), 0)
        outputs: Any = ()
        for m in range(len(self.nets)):
            outputs = (*outputs, self.nets[m](own))
        made: Any = ()
        for k in range(len(outputs[0])):
            chosen = 0.0
            for m in range(len(self.nets)):
                chosen = chosen + who[:, m : m + 1] * primitives.item(outputs[m], k)
            made = (*made, chosen)
        return made

    def of_all(self, leaves):
        """The outputs of each agent's actor for its own observation: float32 (B, M, A) each, for leaves (B, M, ...)."""
        outputs: Any = ()
        for m in range(len(self.nets)):
            outputs = (*outputs, self.nets[m](of_agent(leaves, m)))
        made: Any = ()
        for k in range(len(outputs[0])):
            each: Any = ()
            for m in range(len(self.nets)):
                each = (*each, primitives.item(outputs[m], k))
            made = (*made, ops.Stack(1)(each))
        return made

    def host(self) -> numpy_networks.AgentActors:
        return numpy_networks.AgentActors(host_of(self.nets), self.place)


class SoftAgentActors(AgentActors):
    """`AgentActors` whose continuous actions are the tanh of normals: it returns mean and log standard deviation."""

    box_class = SquashedActor


class AgentCritic(nn.Cell):
    """Value of the observations and actions of agents for one of them: float32 (B,)."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, seen: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.seen = seen
        action = spec["action"]
        size = action["n"] if action["kind"] == "discrete" else math.prod(action["shape"])
        self.torso = MLP.of(len(seen) * (self.encoder.out_features + size), model, None, rng)
        self.value = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, actions, leaves):
        """The value, float32 (B,), by the actions of all agents, float32 (B, M, A), and the leaves of their
        observations, (B, M, ...) each."""
        parts: Any = ()
        for m in self.seen:
            parts = (*parts, self.encoder(of_agent(leaves, m)), primitives.item(of_agent((actions,), m), 0))
        return self.value(self.torso(ops.Concat(-1)(parts)))


class AgentCritics(nn.Cell):
    """N `AgentCritic` for each of the M agents."""

    def __init__(
        self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, central: bool, n_critics: int = 1
    ) -> None:
        super().__init__()
        count = len(spec["agents"]["names"])
        seen = [tuple(range(count)) if central else (m,) for m in range(count)]
        self.agents, self.n_critics = count, n_critics
        self.nets = nn.CellList([AgentCritic(spec, model, rng, agents) for _ in range(n_critics) for agents in seen])
        self.is_own = tuple(ms.Tensor(row.reshape(1, count, 1)) for row in np.eye(count, dtype=np.bool_))

    def construct(self, actions, leaves):
        """The values of all agents, float32 (N, B, M); for the arguments see `AgentCritic`."""
        made: Any = ()
        for k in range(len(self.nets)):
            made = (*made, self.nets[k](actions, leaves))
        return self.by_critic(made)

    def of_own_actions(self, actions, own, leaves, count):
        """The values, float32 (N, B, M), of each agent if it acts as in `own` and the others as in `actions`, float32
        (B, M, A) each; leaves of all agents' observations: (B, M, ...) each."""
        made: Any = ()
        for k in range(count * self.agents):
            is_own = ops.BroadcastTo(actions.shape)(primitives.item(self.is_own, k % self.agents))
            made = (*made, self.nets[k](ops.Select()(is_own, own, actions), leaves))
        return self.by_critic(made)

    def by_critic(self, values):
        """A tuple of values (B,), ordered by critic and then by agent, as one array (N, B, M)."""
        made: Any = ()
        for k in range(len(values) // self.agents):
            made = (*made, ops.Stack(1)(values[k * self.agents : (k + 1) * self.agents]))
        return ops.Stack(0)(made)


def of_agent(leaves, m):
    """The leaves of agent m, (B, ...) each, from leaves of all agents, (B, M, ...) each."""
    parts: Any = ()
    for x in leaves:
        rest = x.shape[2:]
        begin: Any = (0, m)
        for _ in rest:
            begin = (*begin, 0)
        one = ops.Slice()(x, begin, (x.shape[0], 1, *rest))
        parts = (*parts, ops.Reshape()(one, (x.shape[0], *rest)))
    return parts
