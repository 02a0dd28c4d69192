"""AIRL: adversarial inverse reinforcement learning, a reward that explains an expert's steps.

Fu et al., 2018, https://arxiv.org/abs/1710.11248, algorithm 1 and eq. 4: a discriminator learns to distinguish the
expert's recorded steps from the agent's. Its form separates the reward g from potential-based shaping by h:

    f(s, a, s') = g(s, a) + gamma h(s') - h(s)             g(s) with `state_only`; h(s') = 0 after a true end
    D = exp(f) / (exp(f) + pi(a|s)) = sigmoid(f - log pi(a|s))
    L = -mean_expert[ log D ] - mean_agent[ log(1 - D) ]
    r = log D - log(1 - D) = f - log pi(a|s)

Where the agent's steps are the expert's, f is the expert's soft advantage. If the dynamics are deterministic and the
true reward depends on the state only, g(s) is then the true reward and h the soft value, each up to a constant (theorem
5.1, for environments whose states are linked in both directions, "decomposable" ones).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.data.dataset import Dataset
from minding.engine.data.rollout import Rollout
from minding.engine.errors import ChainError
from minding.engine.process.runtime import nn, ops
from minding.engine.types import Array, ObsLike
from minding.policies.learning.steps import Inputs
from minding.policies.networks.encoder import ActionNumbers, ObsEncoder
from minding.policies.networks.layers import MLP, ScalarLinear
from minding.policies.rewards.recorded_reward import RecordedReward, RecordedStep, told_apart


class ShapedReward(nn.Cell):
    """f(s, a, s'), float32 (B,), of the fields `AIRL.fields` in their order."""

    def __init__(self, spec: Mapping[str, Any], model: Any, cfg: Any, gamma: float, rng: np.random.Generator) -> None:
        super().__init__()
        space, self.gamma, self.state_only = spec["observation"], float(gamma), bool(cfg.state_only)
        self.numbers = ActionNumbers(spec["action"])
        self.encoder = ObsEncoder(space, model, rng, whitened=True)
        size = self.encoder.out_features + (0 if self.state_only else self.numbers.out_features)
        self.body = MLP(size, cfg.hidden, "tanh", math.sqrt(2), rng)
        self.head = ScalarLinear(self.body.out_features, 1.0, rng)
        self.shaping_encoder = ObsEncoder(space, model, rng, whitened=True)
        self.shaping_body = MLP(self.shaping_encoder.out_features, cfg.hidden, "tanh", math.sqrt(2), rng)
        self.shaping_head = ScalarLinear(self.shaping_body.out_features, 1.0, rng)

    def reward(self, obs, action):
        """g(s, a), or g(s), float32 (B,)."""
        seen = self.encoder(obs)
        if not self.state_only:
            seen = ops.Concat(-1)((seen, self.numbers(action)))
        return self.head(self.body(seen))

    def shaping(self, obs):
        """h(s), float32 (B,)."""
        return self.shaping_head(self.shaping_body(self.shaping_encoder(obs)))

    def advantage(self, obs, action, next_obs, terminated):
        """f, float32 (B,)."""
        ahead = self.gamma * (1.0 - terminated) * self.shaping(next_obs)
        return self.reward(obs, action) + ahead - self.shaping(obs)

    def construct(self, *fields):
        leaves = len(fields) // 2 - 1
        return self.advantage(fields[:leaves], fields[leaves], fields[leaves + 1 : -1], fields[-1])


class AIRLCell(RecordedStep):
    """Root cell: g, h and their optimizer. The first half of a minibatch are the expert's steps."""

    metrics = ("airl_loss", "airl_expert", "airl_agent")

    def loss(self, batch):
        f = self.net.advantage(batch["obs"], batch["action"], batch["next_obs"], batch["terminated"])
        results = told_apart(f - batch["log_prob"])
        return results[0], self.named(results)


class AIRL(RecordedReward):
    """Rewards what distinguishes an expert's data from the agent's steps, apart from the policy itself.

    Args:
      log_prob: function of observations and actions in the policy's units, ``(B, ...)`` each, that returns their
        log-probability under the present policy, float32 (B,).
    """

    name = "airl"
    fields = ("obs", "action", "next_obs", "terminated")

    def __init__(self, cfg: Any, dataset: Dataset, log_prob: Callable[[ObsLike, Array], Array]) -> None:
        super().__init__(cfg, dataset)
        self._dataset, self._log_prob = dataset, log_prob

    @classmethod
    def of(cls, cfg: Any, dataset: Dataset, policy: Any) -> AIRL:
        return cls(cfg, dataset, policy.acting.own_actor().log_prob)

    def make_root(self, cfg: Any, rng: np.random.Generator) -> AIRLCell:
        net = ShapedReward(self.spec, cfg.policy.model, self.cfg, cfg.policy.learn.gamma, rng)
        return AIRLCell(net, self.cfg)

    def reward(self, data: dict[str, Array], rows: Array, rollout: Rollout) -> tuple[Array, Mapping[str, float]]:
        if "log_prob" not in rollout.record:
            raise ChainError(
                "airl: ctx.trajectories has no log-probabilities: the collector's policy does not record any; use a "
                "policy such as PPO"
            )
        agent, own = self._whitened(data), rollout.record["log_prob"].reshape(-1)
        reward = np.zeros(len(own))
        reward[rows] = self.scores(agent)[rows] - own[rows]
        self.check_finite(reward)
        tables, index = self.with_recorded(agent), self.drawn(rows)
        expert, agents = index[:, : self._size], index[:, self._size :] - self._count
        both = np.concatenate([self._expert_log_prob(expert), own[agents]], axis=1)
        inputs = Inputs(constants=dict(self.root.optim.rates(0.0)), steps={"log_prob": both.astype(np.float32)})
        return reward, self._update(IndexedBatch(self._layout, tables, index), inputs).metrics

    def _expert_log_prob(self, index: Array) -> Array:
        """Log-probabilities of the expert's actions under the present policy, shaped like the row numbers `index`."""
        rows = index.reshape(-1)
        leaves = {path: values[rows] for path, values in self._dataset.obs.items()}
        obs = leaves.get("", leaves)
        return self._log_prob(obs, self._dataset.rows(["action"], rows)["action"]).reshape(index.shape)
