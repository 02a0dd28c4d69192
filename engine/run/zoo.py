"""The zoo: trained agents that come with minding, each in a folder as `Agent.save` writes it; see docs/zoo.md."""

from __future__ import annotations

from pathlib import Path

import minding
from minding.engine.errors import ConfigError, nearest

NAME = "zoo"
FOLDER = Path(minding.__file__).parent / NAME


def agents() -> list[str]:
    """Names of the agents."""
    return sorted(each.name for each in FOLDER.iterdir() if each.is_dir()) if FOLDER.is_dir() else []


def located(path: Path) -> Path:
    """A path that a user gave for a folder to read: ``zoo/NAME`` is an agent of the zoo unless there is such a folder.

    Raises:
      ConfigError: it is neither; names the nearest agent.
    """
    if path.is_absolute() or path.parent != Path(NAME) or path.exists():
        return path
    if path.name not in agents():
        raise ConfigError(
            f"no folder {str(path)!r}, and no agent of the zoo with this name{nearest(path.name, agents())}; "
            f"the zoo has {', '.join(agents()) or 'no agents in this installation'}"
        )
    return FOLDER / path.name


def is_agent(path: Path) -> bool:
    """Whether a folder belongs to an agent of the zoo; commands do not write there."""
    return path.resolve().parent == FOLDER.resolve()
