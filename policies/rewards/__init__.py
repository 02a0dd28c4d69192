"""Models that estimate rewards, for `middleware.reward_estimator`; none of them acts.

Each model is in the file of its name: `MODELS` has the name of the class. Those that reward novelty are made from a
configuration, ``RND(cfg)``; those that learn from recorded data also from the data, see `recorded.RecordedReward.of`.
"""

import importlib
from typing import Any

from minding.engine.config.config import Config
from minding.engine.config.options import setting_at

MODELS = {"airl": "AIRL", "gail": "GAIL", "icm": "ICM", "rnd": "RND", "trex": "TREX"}
"""Class by name of the model, which is also the name of its file and of its section in `policy.other`."""


def reward_model(name: str) -> Any:
    """The class of a model; loads MindSpore."""
    return getattr(importlib.import_module(f"{__name__}.{name}"), MODELS[name])


NOVELTY = ("rnd", "icm")
"""The models that reward novelty, by their sections in `policy.other`."""


def novelty_weights(cfg: Config) -> dict[str, float]:
    """The weights that are not 0, by model."""
    found = {name: setting_at(cfg, f"policy.other.{name}.weight", 0.0) for name in NOVELTY}
    return {name: weight for name, weight in found.items() if weight}
