"""Initial weights, drawn from a NumPy Generator so that the run's seed determines them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array


def orthogonal(shape: tuple[int, int], gain: float, rng: np.random.Generator) -> Array:
    """Orthogonal matrix times `gain` (Saxe et al., 2014, https://arxiv.org/abs/1312.6120), float32 ``(out, in)``."""
    rows, cols = shape
    normal = rng.standard_normal((max(rows, cols), min(rows, cols)))
    q, r = np.linalg.qr(normal)
    q *= np.sign(np.diag(r))
    return np.ascontiguousarray(gain * (q if rows >= cols else q.T), dtype=np.float32)


def fan_in_uniform(shape: Sequence[int], fan_in: int, rng: np.random.Generator) -> Array:
    """Numbers uniform in +-1/sqrt(fan_in), float32, the usual initial weights and biases of linear and convolution
    layers."""
    bound = 1.0 / math.sqrt(fan_in)
    return rng.uniform(-bound, bound, size=shape).astype(np.float32)
