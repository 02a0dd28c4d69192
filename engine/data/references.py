"""Reference returns in recorded data, of random actions and of an expert, with which other returns are normalized."""

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from minding.engine.errors import DataError

_KEY = "references"
"""Key of the reference returns in `Dataset.about`."""
_HOW = "--random-return R --expert-return R"


@dataclasses.dataclass(frozen=True)
class References:
    """Two mean returns in the environment of the data."""

    random: float
    expert: float

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            # An integer of any size need not have a float.
            if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
                raise DataError(f"the reference return {name!r} is {str(value)[:40]}: expected a finite number")
        if self.random == self.expert:
            raise DataError(
                f"the reference returns are equal ({self.random:g}): a normalized score is "
                f"100 (R - random) / (expert - random); give two that differ with {_HOW}"
            )

    def normalized(self, value: float) -> float:
        """100 (R - random) / (expert - random) of a return R (Fu et al., 2020, https://arxiv.org/abs/2004.07219)."""
        return 100.0 * (value - self.random) / (self.expert - self.random)


def references_of(about: Mapping[str, Any]) -> References | None:
    """The reference returns of recorded data; None if there are none."""
    found = about.get(_KEY)
    if found is None:
        return None
    if not isinstance(found, Mapping) or found.keys() != {"random", "expert"}:
        raise DataError(f"the reference returns are {str(found)[:60]}: expected a number for random and for expert")
    return References(**found)


def carrying(about: Mapping[str, Any], references: References | None) -> dict[str, Any]:
    """The metadata of recorded data with reference returns; None leaves them as they are."""
    return {**about} if references is None else {**about, _KEY: dataclasses.asdict(references)}


def common(found: Iterable[References | None]) -> References | None:
    """The references of sets that are joined; None if no set has any."""
    different = list(dict.fromkeys(each for each in found if each is not None))
    if len(different) > 1:
        raise DataError(
            f"the sets carry different reference returns ({different[0]}, {different[1]}): choose the ones to use with "
            f"{_HOW}"
        )
    return different[0] if different else None
