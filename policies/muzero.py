"""Gumbel MuZero: planning in a learned model of rewards, values and policies, which predicts no observations.

Schrittwieser et al., 2020 (MuZero), https://arxiv.org/abs/1911.08265; the search and its policy pi': Danihelka et al.,
2022, https://openreview.net/forum?id=bERaNdoegnO.

    s_0 = h(o_t),   r_k, s_k = g(s_{k-1}, a_{t+k-1}),   p_k, v_k = f(s_k)
    L = mean[ l_p(pi'_t, p_0) + c_v l(z_t, v_0)
              + 1/K sum_{k=1..K} ( l(u_{t+k}, r_k) + l_p(pi'_{t+k}, p_k) + c_v l(z_{t+k}, v_k) ) ]
    z_t = sum_{i<n} gamma^i u_{t+i+1} + gamma^n v_target(o_{t+n})

If two players take turns, each with rewards and values of their own, gamma is negative. With `reanalysis`, pi' of old
steps comes from a search with the current network (appendix H); their values do in any case. With `random_share`, the
sum of z_t ends before a random action, whose own step has no z: values are those of what the search plays.

u_{t+1} is the reward of the action a_t. l_p is the cross-entropy with pi', l that of two-hot distributions. After a
terminal step, rewards and values are 0 for any action, and the policy is not trained. Gradients into each state of the
model are halved.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.data.observation import leaf_name
from minding.engine.process.runtime import ms, ops
from minding.engine.search.gumbel import GumbelOptions
from minding.engine.types import Array
from minding.policies.acting import compositions
from minding.policies.acting.actors import Network, PlanningActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs, NetworkStep
from minding.policies.learning.target import SoftTarget, equalize, sequence_targets
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Composed, Linear
from minding.policies.networks.world_model import SymlogEncoder, TwoHotNumber
from minding.policies.ops import primitives
from minding.policies.ops.primitives import at_first, in_time
from minding.policies.settings.search_and_models import MuZeroSettings


class PlanningNetwork(Composed, compositions.PlanningNetwork):
    """Takes the observation leaves; to plan, it takes more leaves, of which only the last one is read: rows (latent,
    action), float32 (B, D + A). Returns (logits (B, A), value (B,), latent (B, D), reward (B,)).

    From observations, the reward is 0, and logits of actions that the mask forbids are `ILLEGAL`. From rows, the latent
    and the reward are those that follow the action, a one-hot. Each latent is scaled to [0, 1] by its own minimum and
    maximum.
    """

    memory_size = 0
    shared_outputs = ()
    decision = Decision(0, "logits")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        size, actions = model.latent, spec["action"]["n"]
        self.seen = SymlogEncoder(spec, model, rng)
        self.num_leaves = len(self.seen.squeezed)
        self.first = Linear(self.seen.out_features, size, None, rng)
        self.transition = MLP.of(size + actions, model, None, rng)
        self.later = Linear(self.transition.out_features, size, None, rng)
        self.reward = TwoHotNumber(size, model, rng)
        self.value = TwoHotNumber(size, model, rng)
        self.policy = MLP.of(size, model, None, rng)
        self.logits = Linear(self.policy.out_features, actions, 0.01, rng)
        self.mask = action_mask(spec["observation"])
        self.table = ms.Tensor(np.eye(actions, dtype=np.float32))

    def after(self, latent, action):
        """The latents (B, D) after actions, int32 (B,), in latents (B, D)."""
        return self.follow(ops.Concat(-1)((latent, ops.Gather()(self.table, action, 0))))


class MuZeroCell(NetworkStep):
    """Root cell: network, its moving average for targets, and optimizer. Rows are sequences, (T, B), T = K + n."""

    metrics = ("loss", "policy_loss", "value_loss", "reward_loss", "value", "grad_norm")

    def __init__(self, net: PlanningNetwork, target: PlanningNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(net, {"net": Group.of(net, learn, max_grad_norm=learn["grad_norm"])})
        self.target = target
        self.move_target = SoftTarget(net, target, self.optim.block("net"))
        self.unroll, self.value_weight = learn["length"] - learn["nstep"], float(learn["value_weight"])

    def construct(self, batch):
        metrics = self.step(batch)
        self.move_target(batch["tau"], metrics["grad_norm"])
        return metrics

    def loss(self, batch):
        """The loss and the metrics by name; see `MuZero.targets` for the inputs."""
        count, states = batch["index"].shape[1], self.unroll + 1
        flat = (states * count,)
        # Target
        seen: Any = ()
        last = ops.Reshape()(batch["bootstrap"], flat)
        for k in range(self.net.num_leaves):
            seen = (*seen, ops.Gather()(primitives.item(batch["next_obs"], k), last, 0))
        bootstrap = self.target.state_value(self.target.represent(seen))
        value = ops.Reshape()(batch["return"], flat) + ops.Reshape()(batch["decay"], flat) * bootstrap
        value_target = self.net.value.target(ops.stop_gradient(value))
        reward_target = self.net.reward.target(ops.Reshape()(batch["reward_target"], (-1,)))
        policy_target = ops.Reshape()(batch["policy_target"], (states * count, -1))
        # Model
        state = self.net.represent(at_first(in_time(batch["obs"], count)))
        taken = ops.Reshape()(batch["taken"], (-1,))
        latents: Any = (state,)
        for k in range(self.unroll):
            halved = 0.5 * state + 0.5 * ops.stop_gradient(state)
            state = self.net.after(halved, primitives.part(taken, k * count, count))
            latents = (*latents, state)
        latent = ops.Concat(0)(latents)
        later_latent = primitives.part(latent, count, self.unroll * count)
        # Loss
        scores = ops.LogSoftmax(-1)(self.net.policy_logits(latent))
        of_policy = -ops.ReduceSum()(policy_target * scores, -1)
        of_value = self.net.value.loss(self.net.value(latent), value_target)
        of_reward = self.net.reward.loss(self.net.reward(later_latent), reward_target)
        policy_loss = states * primitives.mean(ops.Reshape()(batch["policy_weight"], flat) * of_policy)
        value_loss = states * primitives.mean(ops.Reshape()(batch["value_weight"], flat) * of_value)
        reward_loss = self.unroll * primitives.mean(ops.Reshape()(batch["reward_weight"], (-1,)) * of_reward)
        loss = policy_loss + self.value_weight * value_loss + reward_loss
        mean_value = primitives.mean(primitives.part(value, 0, count))
        return loss, self.named((loss, policy_loss, value_loss, reward_loss, ops.stop_gradient(mean_value)))


class MuZero(BasePolicy):
    """Gumbel MuZero for Discrete actions."""

    cfg: MuZeroSettings
    name = "muzero"
    network_class = PlanningNetwork
    sequences = True
    # The model is unrolled from the first row, whose return needs the rows after it.
    from_each_row = True
    host_fields = ("reward", "terminated", "action", "search_policy", "strayed")

    def make_root(self, net: PlanningNetwork, rng: np.random.Generator) -> MuZeroCell:
        target = self.make_network(rng)
        equalize(net, target)
        return MuZeroCell(net, target, self.cfg.learn)

    def make_actor(self, network: Network, rng: np.random.Generator) -> PlanningActor:
        collect: Any = self.cfg.collect
        each = collect.gumbel
        options = GumbelOptions(collect.simulations, each.max_considered, each.c_visit, each.c_scale)
        return PlanningActor(self.name, network, self.spec, rng, options, self.discount, collect.random_share)

    @property
    def discount(self) -> float:
        """The factor of what follows a step, negative if two players take turns."""
        gamma = float(self.cfg.learn.gamma)
        return -gamma if self.cfg.learn.two_players else gamma

    @property
    def row_fields(self) -> dict[str, Field]:
        transition = {name: field for name, field in self.transition_fields.items() if name != "discount"}
        return {**transition, "search_policy": Field((self.spec["action"]["n"],)), "strayed": Field()}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        return Inputs(self.targets(batch), self.constants(progress))

    def targets(self, batch: IndexedBatch) -> dict[str, Array]:
        """The inputs of gradient steps that no network computes, for K unrolled steps.

        Args:
          batch: sequences, index ``(G, T, B)``.

        Returns:
          By name, `taken`, `reward_target` and `reward_weight` ``(G, K, B)`` and the others ``(G, K + 1, B)``:
          - `taken`: int32, the actions; after a terminal step random ones;
          - `return`, `decay`, `bootstrap`: see `sequence_targets`; after a terminal step 0;
          - `reward_target`: float32, the rewards;
          - `policy_weight`, `value_weight`, `reward_weight`: float32, 1 for the first state and 1 / K for the others;
            0 where there is no target;
          - `policy_target`: float32 ``(G, K + 1, B, A)``, pi' as recorded or, for the share `reanalysis` of the
            sequences, by a search with the current network.
        """
        unroll = self.cfg.learn.length - self.cfg.learn.nstep
        rows = {name: self.read(name, batch) for name in self.host_fields}
        found = sequence_targets(batch, self.cfg.learn.nstep, self.discount, rows["strayed"])
        learned = found["learned"]
        ended = (rows["terminated"] * learned).any(axis=1, keepdims=True)
        there = np.maximum(learned, ended.astype(np.float32))
        random = self.learn_rng.integers(0, self.spec["action"]["n"], learned.shape)
        weight = np.full((unroll + 1, 1), 1.0 / unroll, np.float32)
        weight[0] = 1.0
        states, steps = slice(0, unroll + 1), slice(0, unroll)
        return {
            "taken": np.where(learned > 0, rows["action"], random)[:, steps].astype(np.int32),
            "return": (found["return"] * learned)[:, states],
            "decay": (found["decay"] * learned)[:, states],
            "bootstrap": np.ascontiguousarray(found["bootstrap"][:, states]),
            "reward_target": (rows["reward"] * learned).astype(np.float32)[:, steps],
            "policy_weight": weight * learned[:, states],
            "value_weight": weight * (there - rows["strayed"] * learned)[:, states],
            "reward_weight": weight[1:] * there[:, steps],
            "policy_target": self._reanalyzed(batch, np.ascontiguousarray(rows["search_policy"][:, states])),
        }

    def _reanalyzed(self, batch: IndexedBatch, policy: Array) -> Array:
        """The policies ``(G, K + 1, B, A)``, of which those of the first sequences are computed again."""
        states, sequences = policy.shape[1:3]
        count = round(self.cfg.learn.reanalysis * sequences)
        if count:
            index = batch.index[:, :states, :count]
            names = [leaf_name("obs", leaf) for leaf in self.leaves]
            rows = [batch.layout.read(batch.tables.host, name)[index.reshape(-1)] for name in names]
            actor: Any = self.actors["collect"]
            outputs = actor.network(rows)
            found = actor.search(outputs, self.learn_rng.gumbel(size=outputs[0].shape))
            policy[:, :, :count] = found.policy.reshape(*index.shape, -1)
        return policy
