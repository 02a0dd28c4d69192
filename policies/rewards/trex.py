"""T-REX: trajectory-ranked reward extrapolation, a reward from episodes of different quality.

Brown et al., 2019, https://arxiv.org/abs/1904.06387, eq. 1 and 2: the sum of the learned rewards r over a part of a
better episode is to exceed the sum over an equally long part of a worse one. Such a reward can say more than the best
recorded episode shows.

    P(i < j) = exp(sum_j r(s)) / (exp(sum_i r(s)) + exp(sum_j r(s)))
    L = -mean_pairs[ log P(i < j) ]                        j ranks higher than i

    reward = sigmoid(z)   or   z,   z = (r(s) - mean) / deviation over the recorded steps

Only differences of sums are learned, so that z has the reward's scale and offset taken out. The model learns once,
before the first rollout is rewarded.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.data.dataset import Dataset
from minding.engine.data.holdout import episode_ranks
from minding.engine.data.rollout import Rollout
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array, StateDict
from minding.policies.learning.steps import Inputs
from minding.policies.networks.encoder import ObsEncoder
from minding.policies.networks.layers import MLP, ScalarLinear
from minding.policies.ops import primitives
from minding.policies.rewards.recorded_reward import RecordedReward, RecordedStep

_CALLS = 10
"""Least number of calls that make the gradient steps; the metrics are those of the last one."""
_ROWS = 1 << 20
"""Largest number of rows of a call, unless a single gradient step has more."""
_JUDGED = 100_000
"""Largest number of recorded steps from which the mean and the deviation of rewards are taken."""


class StateReward(nn.Cell):
    """r(s), float32 (B,), of the leaves of an observation."""

    def __init__(self, space: Mapping[str, Any], model: Any, hidden: list[int], rng: np.random.Generator) -> None:
        super().__init__()
        self.encoder = ObsEncoder(space, model, rng, whitened=True)
        self.body = MLP(self.encoder.out_features, hidden, "tanh", math.sqrt(2), rng)
        self.head = ScalarLinear(self.body.out_features, 1.0, rng)

    def reward(self, obs):
        return self.head(self.body(self.encoder(obs)))

    def construct(self, *fields):
        return self.reward(fields)


class TREXCell(RecordedStep):
    """Root cell: the reward and its optimizer. A minibatch has the rows of the parts of worse episodes, then those of
    the better ones, `length` rows each, of which `within` counts."""

    metrics = ("trex_loss", "trex_accuracy")

    def __init__(self, net: StateReward, cfg: Any) -> None:
        super().__init__(net, cfg)
        self.shape = (2 * cfg.batch_size, cfg.length)
        self.pairs = cfg.batch_size

    def loss(self, batch):
        rewards = self.net.reward(batch["obs"]) * batch["within"]
        sums = ops.ReduceSum()(ops.Reshape()(rewards, self.shape), -1)
        worse, better = primitives.part(sums, 0, self.pairs), primitives.part(sums, self.pairs, self.pairs)
        # -log P = softplus(sum_i - sum_j)
        loss = primitives.mean(ops.Softplus()(worse - better))
        return loss, self.named((loss, primitives.mean(ops.Cast()(better > worse, ms.float32))))


class TREX(RecordedReward):
    """Rewards what distinguishes better recorded episodes from worse ones."""

    name = "trex"
    fields = ("obs",)

    def __init__(self, cfg: Any, dataset: Dataset) -> None:
        super().__init__(cfg, dataset)
        ranks = episode_ranks(dataset, self.cfg.ranking)
        self._order = np.argsort(ranks, kind="stable")
        _, self._first, self._same = np.unique(ranks[self._order], return_index=True, return_counts=True)
        self._starts = np.concatenate([[0], dataset.end[:-1] + 1])
        self._lengths = dataset.end - self._starts + 1
        self._length, self._output = self.cfg.length, self.cfg.output
        # Mean and deviation of rewards, and the metrics of learning; empty before it.
        self._fit: dict[str, float] = {}

    def make_root(self, cfg: Any, rng: np.random.Generator) -> TREXCell:
        return TREXCell(StateReward(self.spec["observation"], cfg.policy.model, self.cfg.hidden, rng), self.cfg)

    def reward(self, data: dict[str, Array], rows: Array, rollout: Rollout) -> tuple[Array, Mapping[str, float]]:
        if not self._fit:
            self._fit = self._learn()
        found = self.scores(self._whitened(data))
        z = (found - self._fit["mean"]) / self._fit["deviation"]
        reward = np.zeros(len(z))
        reward[rows] = 0.5 + 0.5 * np.tanh(0.5 * z[rows]) if self._output == "sigmoid" else z[rows]
        self.check_finite(reward)
        return reward, {name: self._fit[name] for name in self.root.metrics}

    def _learn(self) -> dict[str, float]:
        """Makes all gradient steps; returns mean and deviation of rewards, and the metrics of the last call."""
        rows = self._steps * 2 * self._size * self._length
        calls = min(self._steps, max(_CALLS, -(-rows // _ROWS)))
        tables, rates, metrics = self.with_recorded(), dict(self.root.optim.rates(0.0)), {}
        for _ in range(calls):
            index, within = self._parts(-(-self._steps // calls))
            inputs = Inputs(constants=rates, steps={"within": within})
            metrics = dict(self._update(IndexedBatch(self._layout, tables, index), inputs).metrics)
        some = np.linspace(0, self._count - 1, min(self._count, _JUDGED)).astype(np.int64)
        found = self.scores({name: values[some] for name, values in self._recorded.items()})
        return {**metrics, "mean": float(found.mean()), "deviation": float(found.std()) or 1.0}

    def _parts(self, steps: int) -> tuple[Array, Array]:
        """Row numbers of random parts of random pairs of episodes, int32 (K, 2 * P * L), and which of them count."""
        episodes = np.stack(self._pairs((steps, self._size)), axis=1)
        lengths = self._lengths[episodes]
        length = np.minimum(lengths.min(axis=1, keepdims=True), self._length)
        begin = self._starts[episodes] + self._rng.integers(0, lengths - length + 1)
        ahead = np.arange(self._length)
        index = np.minimum(begin[..., None] + ahead, self._count - 1)
        within = np.broadcast_to(ahead < length[..., None], index.shape)
        return index.reshape(steps, -1).astype(np.int32), within.reshape(steps, -1).astype(np.float32)

    def _pairs(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Episodes of different rank, the worse and the better one, uniform over all such pairs; each of this shape."""
        count = len(self._order)
        # By rank, the episodes that are compared with an episode of this rank.
        others = count - self._same
        weights = (self._same * others) / (self._same * others).sum()
        rank = self._rng.choice(len(weights), shape, p=weights)
        one = self._first[rank] + self._rng.integers(0, self._same[rank])
        other = self._rng.integers(0, others[rank])
        other += self._same[rank] * (other >= self._first[rank])
        return self._order[np.minimum(one, other)], self._order[np.maximum(one, other)]

    def state_dict(self) -> StateDict:
        """Copies of all parameters by name, the random stream, the digest of the data, and what came of learning."""
        return {**super().state_dict(), "fit": dict(self._fit)}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._fit = {name: float(value) for name, value in state["fit"].items()}
