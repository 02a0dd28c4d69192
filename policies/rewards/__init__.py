"""Models that estimate rewards, for `middleware.reward_estimator`; none of them acts.

Each model is in the file of its name: `MODELS` has the name of the class. Those that reward novelty are made from a
configuration, ``RND(cfg)``; those that learn from recorded data also from the data, see `recorded.RecordedReward.of`.
"""

import importlib
from typing import Any

MODELS = {"airl": "AIRL", "gail": "GAIL", "icm": "ICM", "rnd": "RND", "trex": "TREX"}
"""Class by name of the model, which is also the name of its file and of its section in `policy.other`."""


def reward_model(name: str) -> Any:
    """The class of a model; loads MindSpore."""
    return getattr(importlib.import_module(f"{__name__}.{name}"), MODELS[name])
