"""The settings of rewards for novelty."""

from minding.engine.config.config import Config
from minding.engine.config.options import setting_at

NOVELTY = ("rnd", "icm")
"""The models that reward novelty, by their sections in `policy.other`."""


def novelty_weights(cfg: Config) -> dict[str, float]:
    """The weights that are not 0, by model."""
    found = {name: setting_at(cfg, f"policy.other.{name}.weight", 0.0) for name in NOVELTY}
    return {name: weight for name, weight in found.items() if weight}
