"""Settings of DQN."""

from __future__ import annotations

from minding.policies.settings import groups
from minding.policies.settings.algorithm import Algorithm

algorithm = Algorithm("dqn", "DQN", groups.action_values, actions=("discrete",), chain="off_policy")
