"""The zoo: trained agents that come with minding, each in a folder that `Agent.save` wrote; see docs/zoo.md."""

from pathlib import Path

import minding
from minding.engine.errors import ConfigError, nearest
from minding.engine.paths import absolute

NAME = "zoo"
FOLDER = Path(minding.__file__).parent / NAME


def agents() -> list[str]:
    return sorted(each.name for each in FOLDER.iterdir() if each.is_dir()) if FOLDER.is_dir() else []


def located(path: Path) -> Path:
    """The absolute path of a user's folder: ``zoo/NAME`` is an agent of the zoo unless there is a folder of
    that path."""
    given = absolute(path)
    if path.is_absolute() or path.parent != Path(NAME) or given.exists():
        return given
    if path.name not in agents():
        raise ConfigError(
            f"no folder {str(path)!r}, and no agent of the zoo with this name{nearest(path.name, agents())}; "
            f"the zoo has {', '.join(agents()) or 'no agents in this installation'}"
        )
    return FOLDER / path.name


def is_agent(path: Path) -> bool:
    """Whether a folder belongs to an agent of the zoo; commands do not write there."""
    return path.resolve().parent == FOLDER.resolve()
