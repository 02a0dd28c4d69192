"""The evaluation of policies on recorded data: their action values, and fitted Q evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minding.engine.errors import MindingError
from minding.engine.process import runtime
from minding.policies.learning.action_values import ActionValues
from minding.policies.learning.fitted_q import FittedQ
from minding.policies.networks.encoder import normalizers_of

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy


def action_values_of(policy: BasePolicy) -> ActionValues | None:
    """A reader of the action values of a policy; None if its algorithm has none."""
    if not policy.root.has_action_values:
        return None
    return ActionValues(policy.root, [leaf.path for leaf in policy.leaves], f"{policy.name}.values")


def fitted_q_of(policy: BasePolicy, gamma: float, limits: tuple[float, float]) -> FittedQ:
    """Fitted Q evaluation of a policy, see `BasePolicy.fitted_q`."""
    if policy.spec["action"]["kind"] not in ("discrete", "box"):
        raise MindingError("fitted Q evaluation needs Discrete or Box actions")
    fields = {**policy.obs_fields("obs"), **policy.obs_fields("next_obs"), "action": policy.action_field}
    fitted = FittedQ(policy.spec, policy.cfg.model, fields, gamma, limits, policy.config.seed)
    own = dict(normalizers_of(policy.root).values())
    for field, normalizer in normalizers_of(fitted.root).values():
        normalizer.moments.load_state_dict(own[field].moments.state_dict())
        runtime.assign(normalizer.mean, own[field].mean.asnumpy())
        runtime.assign(normalizer.scale, own[field].scale.asnumpy())
    return fitted
