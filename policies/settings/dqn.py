"""Settings of DQN."""

from __future__ import annotations

from minding.policies.settings import Algorithm, groups

algorithm = Algorithm("dqn", "DQN", groups.action_values, actions=("discrete",), chain="off_policy")
