"""The scale of rewards during learning, where it differs from the environment's (`policy.other.reward`)."""

import numpy as np

from minding.engine.errors import ConfigError, DataError
from minding.engine.types import Array, StateDict

_RANGE, _SHIFT = 1000.0, -1.0


class RewardScale:
    """Scales rewards for learning: ``reward * factor + offset``.

    =============  ==========================  ======
    kind           factor                      offset
    =============  ==========================  ======
    raw            1                           0
    return_range   1000 / (best - worst)       0
    shift          1                           -1
    =============  ==========================  ======

    Best and worst are the highest and the lowest return of the recorded episodes that ended. The numbers belong to the
    policy: they are saved with it, and do not change when it learns from other data or from an environment.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.factor: float | None = None if kind == "return_range" else 1.0
        self.offset = _SHIFT if kind == "shift" else 0.0

    def take(self, returns: Array) -> None:
        """Sets `factor` from the returns ``(E,)`` of recorded episodes, if it depends on them and is not set yet."""
        if self.factor is not None:
            return
        returns = np.asarray(returns, np.float64)
        span = float(returns.max() - returns.min()) if len(returns) else 0.0
        if not span > 0:
            found = f"that of all {len(returns)} is {returns[0]:g}" if len(returns) else "no episode ended"
            raise DataError(
                "policy.other.reward=return_range divides rewards by the range of the recorded episodes' returns, and "
                f"{found}: use policy.other.reward=raw, or data of episodes that went differently"
            )
        self.factor = _RANGE / span

    def numbers(self) -> tuple[float, float]:
        if self.factor is None:
            raise ConfigError(
                "policy.other.reward=return_range takes its factor from recorded data, and this run learned from none: "
                "train on recorded data first, or use policy.other.reward=raw"
            )
        return self.factor, self.offset

    def state_dict(self) -> StateDict:
        return {"factor": self.factor, "offset": self.offset}

    def load_state_dict(self, state: StateDict) -> None:
        self.factor, self.offset = state["factor"], state["offset"]
