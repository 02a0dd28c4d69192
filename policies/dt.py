"""Decision Transformer: a policy that takes the actions of recorded episodes with the return that is asked of it.

Chen et al., 2021, https://arxiv.org/abs/2106.01345, algorithm 1, with the gated transformer of
`networks.recurrent.GTrXL` and one token for each step.

    x_t = [o_t, G_t / c, a_{t-1}],   h_t = GTrXL(x_t and the steps before it),   c = max |return of an episode|
    L = mean_{b,t}[ |mu(h_t) - a_t|^2 ]  (Box)   or   -mean_{b,t}[ log pi(a_t | h_t) ]  (Discrete)

G_t is the sum of the recorded rewards from step t on. While acting, it is the target return minus the rewards of the
episode so far, which are a part of the memory.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import VALID, Field, IndexedBatch, Recorded
from minding.engine.errors import ConfigError
from minding.engine.process import runtime
from minding.engine.process.runtime import ms, ops
from minding.engine.types import StateDict
from minding.policies.acting import compositions
from minding.policies.acting.actors import Network, ReturnActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs, NetworkStep
from minding.policies.networks.actor_critic import StochasticNetwork
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import action_mask, make_action_head
from minding.policies.networks.layers import MLP
from minding.policies.networks.recurrent import GTrXL
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import row_mean

RETURN = "return"
"""Name of the field with the sum of the recorded rewards from a step on."""


class ReturnNetwork(StochasticNetwork, compositions.ReturnNetwork):
    """The parameters of the distribution over actions, for a target return.

    Takes the observation leaves and, as the last leaf, the memory rows, float32 (B, 1 + S + A): the rewards of the
    episode so far, the memory of the transformer, and the last action (a choice as one-hot), 0 before the first one.
    Returns the parameters and the new memory rows, with the action without exploration.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        space = spec["action"]
        self.choices = space["n"] if space["kind"] == "discrete" else 0
        self.actions = self.choices or math.prod(space["shape"])
        self.encoder = make_encoder(spec["observation"], model, rng)
        sizes = (model.memory_dim, model.memory_layers, model.memory_heads, model.memory_length)
        self.memory = GTrXL(self.encoder.out_features + 1 + self.actions, *sizes, rng)
        self.torso = MLP.of(self.memory.out_features, model, None, rng, acts=True)
        self.head = make_action_head(space, self.torso.out_features, rng, log_std=model.log_std)
        self.mask = action_mask(spec["observation"])
        self.table = ms.Tensor(np.eye(max(self.choices, 1), dtype=np.float32))
        # Of the data, before the first step.
        self.target, self.scale = (
            ms.Parameter(ms.Tensor(np.full(1, value, np.float32)), name=name, requires_grad=False)
            for name, value in (("target", 0.0), ("scale", 0.0))
        )

    @property
    def memory_size(self) -> int:
        return int(1 + self.memory.size + self.actions)

    def action_rows(self, action):
        """Recorded actions as rows (B, A)."""
        if self.choices:
            return ops.Gather()(self.table, action, 0)
        return ops.Reshape()(action, (-1, self.actions))


class DecisionTransformerCell(NetworkStep):
    """Root cell: network and optimizer. Rows are sequences, (T, B), which begin with padding."""

    metrics = ("loss", "grad_norm")

    def __init__(self, net: ReturnNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(net, {"net": Group.of(net, learn, max_grad_norm=learn["grad_norm"])})
        self.no_memory = ms.Tensor(np.zeros((1, net.memory.size), np.float32))

    def loss(self, batch):
        """The loss and the metrics by name; see `engine.buffers.dataset_rows.steps_before` for padding."""
        net, (steps, count) = self.net, batch["index"].shape
        valid = ops.Reshape()(batch[VALID], (steps, count))
        begun = valid * (1.0 - primitives.step_before(valid))
        own = net.action_rows(batch["action"])
        last = primitives.step_before(ops.Reshape()(own, (steps, count, net.actions)))
        last = ops.Reshape()(last * ops.ExpandDims()(1.0 - begun, -1), (-1, net.actions))
        x = net.tokens(batch["obs"], ops.ExpandDims()(batch[RETURN], -1), last)
        h = net.memory.unroll(x, ops.Tile()(self.no_memory, (count, 1)), ops.Reshape()(begun, (-1,)))
        params = net.params(net.torso(h), batch["obs"])
        if net.choices:
            error = -net.head.log_prob_entropy(params, batch["action"])[0]
        else:
            error = ops.ReduceSum()(ops.Square()(params[0] - own), -1)
        loss = row_mean(error, {VALID: ops.Reshape()(valid, (-1,))})
        return loss, self.named((loss,))


class DecisionTransformer(BasePolicy):
    """Sequence model of actions for a target return, from recorded data with Discrete or Box actions."""

    name = "dt"
    network_class = ReturnNetwork
    step_class = DecisionTransformerCell
    sequences = True

    def make_actor(self, network: Network, rng: np.random.Generator) -> ReturnActor:
        return ReturnActor(self.name, network, self.spec, rng, self.net.head.distribution)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field, f"{RETURN}.1.0": Field()}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        steps = {} if batch.valid is not None else {VALID: np.ones(batch.index.shape, np.float32)}
        return Inputs(steps, self.constants(progress))

    def take_recorded(self, recorded: Recorded) -> None:
        super().take_recorded(recorded)
        if self.net.scale.asnumpy()[0]:
            return
        target, returns = self.cfg.eval.target_return, recorded.returns
        if not len(returns):
            raise ConfigError(
                f"{self.name}: no recorded episode ends, so none has a return to ask for: record whole episodes"
            )
        runtime.assign(self.net.scale, np.array([max(np.abs(returns).max(), 1e-6)], np.float32))
        runtime.assign(self.net.target, np.array([returns.max() if target is None else target], np.float32))

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if self.cfg.eval.target_return is not None:
            runtime.assign(self.net.target, np.array([self.cfg.eval.target_return], np.float32))
