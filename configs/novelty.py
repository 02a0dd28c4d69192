"""The settings of rewards for novelty."""

from __future__ import annotations

from minding.engine.config.config import Config

NOVELTY = ("rnd", "icm")
"""The models that reward novelty, by their sections in `policy.other`."""


def novelty_weights(cfg: Config) -> dict[str, float]:
    """The weights that are not 0, by model."""
    other = cfg.policy.other
    found = {name: other.read(f"{name}.weight", float) for name in NOVELTY if name in other}
    return {name: weight for name, weight in found.items() if weight}
