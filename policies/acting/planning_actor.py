"""The actor that plans with the networks of MuZero."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.floats import flush_denormals
from minding.engine.search.gumbel import GumbelOptions
from minding.engine.search.learned import Plan, Predicted, plan
from minding.engine.types import Array, ObsLike
from minding.policies.acting.actors import Actor, Network
from minding.policies.acting.numpy_layers import ILLEGAL, Outputs


class PlanningActor(Actor):
    """Searches the learned model in all environments at once, and takes the best action that the search found. When
    exploring, the search draws Gumbel noise at the root; the improved policy is recorded as `search_policy`. A share of
    the actions is uniformly random instead, and recorded as `strayed`.

    Network outputs: see `networks.planning.PlanningNetwork`.

    Args:
      options: settings of the search.
      gamma: discount factor.
      random_share: share of random actions.
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
