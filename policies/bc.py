"""BC: behavioural cloning, a policy from recorded actions by supervised learning.

Pomerleau, 1991, https://doi.org/10.1162/neco.1991.3.1.88: what was done in a recorded state is what the policy shall do
there. Of the data only observations s and actions a are read, no reward.

    L = -mean[ log pi(a|s) ]               discrete actions (the cross-entropy); Box with `log_likelihood`
    L = mean[ sum_i (mu_i(s) - a_i)^2 ]    Box with `squared_error`
"""

from __future__ import annotations

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.core.actors import Network, SamplingActor
from minding.policies.core.base import BasePolicy
from minding.policies.networks.actor_critic import PolicyNetwork
from minding.policies.networks.optim import Adam
from minding.policies.networks.rows import Rows
from minding.policies.ops import lean

METRICS = ("loss", "grad_norm")


def cloning_loss(log_prob):
    """Negative log-likelihood of the recorded actions.

    Args:
      log_prob: float32 (B,), under the policy.

    Returns:
      The loss, a scalar.
    """
    return -lean.mean(log_prob)


def squared_error_loss(mean, action):
    """Squared distance between the policy's actions and the recorded ones.

    Args:
      mean, action: float32 (B, A).

    Returns:
      The loss, a scalar.
    """
    return lean.mean(ops.square(mean - action).sum(axis=-1))


class BCCell(nn.Cell):
    """Root cell: network and optimizer; `construct` performs all gradient steps of an iteration."""

    def __init__(self, net: PolicyNetwork, policy: BC) -> None:
        super().__init__()
        learn = policy.cfg.learn
        self.net = net
        self.optim = Adam(net.trainable_params(), max_grad_norm=learn.grad_norm)
        self.rows = Rows(policy.layout, [*policy.obs_fields("obs"), "action"])
        self.num_leaves = len(policy.leaves)
        self.squared = learn.loss == "squared_error" and policy.spec["action"]["kind"] == "box"
        # The step and the sums of the metrics before the first one.
        self.zeros = (ms.Tensor(np.int32(0)), ms.Tensor(np.zeros(len(METRICS), np.float32)))
        self.gradient = ms.value_and_grad(self.loss, None, self.optim.params)

    def loss(self, obs, action):
        outputs = self.net(obs)
        if self.squared:
            return squared_error_loss(outputs[0], action.reshape(outputs[0].shape))
        return cloning_loss(self.net.head.log_prob_entropy(outputs, action)[0])

    def construct(self, inputs, tables):
        """Inputs: index int32 (K, B), with K = 1 without that axis; learning rate (1,).

        Returns the sums of `METRICS`.
        """
        index, learning_rate = inputs
        if index.ndim == 1:
            return self.step(index, learning_rate, tables)
        i, total = self.zeros
        while i < index.shape[0]:
            total = total + self.step(lean.entry(index, i), learning_rate, tables)
            i = i + 1
        return total

    def step(self, index, learning_rate, tables):
        fields = self.rows(index, tables)
        loss, grads = self.gradient(fields[: self.num_leaves], fields[self.num_leaves])
        norm = self.optim(grads, learning_rate, loss)
        return lean.stacked((loss, norm))


class BC(BasePolicy):
    """Behavioural cloning for Discrete, MultiDiscrete and Box actions."""

    name = "bc"

    def _network(self, rng: np.random.Generator) -> PolicyNetwork:
        return PolicyNetwork(self.spec, self.cfg.model, rng)

    def _root(self, net: PolicyNetwork, rng: np.random.Generator) -> BCCell:
        return BCCell(net, self)

    def _actor(self, network: Network, rng: np.random.Generator) -> SamplingActor:
        return SamplingActor(self.name, network, self.spec, rng, self.net.head.distribution)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field}

    def _learn(self, batch: IndexedBatch, progress: float) -> dict[str, float]:
        steps, rate = len(batch.index), self.learning_rate(progress)
        index = batch.index[0] if steps == 1 else batch.index
        total = self._update(batch.tables, index, np.array(rate, np.float32))
        self.update_normalizers(batch)
        metrics = {name: float(value) / steps for name, value in zip(METRICS, total)}
        return {**metrics, "learning_rate": rate, "grad_steps": steps}
