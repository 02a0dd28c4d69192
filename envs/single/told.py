"""Checks of the dicts by agent that an environment of several agents returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minding.engine.errors import EnvError, ShapeError
from minding.envs.guards.answers import FLAGS, InterfaceError, as_flag, as_info, brief
from minding.envs.guards.values import as_reward


def entry_of(infos: Mapping[str, Any], agent: str, key: str) -> Any:
    """A declared entry of an agent's info; ShapeError if it is missing."""
    if key not in as_info(told_of(as_info(infos, key), agent), key):
        raise ShapeError(f"the info of {agent!r} has no entry {key!r}, which env.info_keys declares")
    return infos[agent][key]


def told_of(infos: Any, agent: str) -> Any:
    """The info of an agent; empty if the agent has no info."""
    return infos.get(agent, {}) if isinstance(infos, Mapping) else {}


def by_agent(given: Any, what: str) -> Mapping[str, Any]:
    """A dict by agent; InterfaceError if `given` is anything else."""
    if not isinstance(given, Mapping):
        raise InterfaceError(f"the {what}s of a step are {brief(given)}; expected a dict with one entry per agent")
    return given


def flags_of(given: Any, what: str) -> dict[str, bool]:
    """The flag of each agent, such as its termination, as a bool."""
    return {
        agent: flag if type(flag) in FLAGS else as_flag(flag, f"the {what} of {agent!r}")
        for agent, flag in by_agent(given, what).items()
    }


def reward_of(value: Any, agent: str) -> float:
    """The reward of one agent as a number."""
    return as_reward(value, f"the reward of {agent!r}")


def true_agents(flags: Mapping[str, bool]) -> list[str]:
    """The agents whose flag is set."""
    return [agent for agent, flag in flags.items() if flag]


def check_told(told: Mapping[str, Mapping[str, Any]], agents: Sequence[str]) -> None:
    """Raises EnvError unless each of the agents has an entry in every dict of `told`, whose keys name the dicts."""
    for what, values in told.items():
        by_agent(values, what)
        for agent in agents:
            if agent not in values:
                raise EnvError(
                    f"the {what} of agent {agent!r} is missing: expected one for each agent that acted in this step"
                )
