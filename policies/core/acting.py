"""What computes a policy's outputs while acting: NumPy on views of the live parameters, or a compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.errors import ConfigError
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.runtime import ms, nn
from minding.engine.types import Array
from minding.policies.core.actors import Network, Outputs
from minding.policies.networks.encoder import ObsEncoder

_HOST_LIMIT = 1_000_000
"""Number of weights up to which NumPy is faster than dispatching a compiled graph on CPU."""


class _Graph(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        # Parameters keep the names they have under the root.
        super().__init__(auto_prefix=False)
        self.net = net

    @ms.jit
    def construct(self, *obs):
        return self.net(obs)


def acting_network(net: Any, backend: str, name: str) -> Network:
    """A function from observation leaves, each ``(B, ...)``, to the network's outputs as NumPy arrays.

    Args:
      net: a cell of `networks` that returns a tuple of arrays.
      backend: 'graph', 'host', or 'auto': 'host' for small networks without convolutions on CPU, else 'graph'.
      name: used in messages.

    Raises:
      ConfigError: if 'host' is asked for and the network has no NumPy form, or the device is not the CPU.
    """
    small = sum(p.size for p in net.get_parameters()) <= _HOST_LIMIT
    encoders = [cell for _, cell in net.cells_and_names() if isinstance(cell, ObsEncoder)]
    possible = runtime.device() == "CPU" and not any(encoder.has_convolutions for encoder in encoders)
    if backend == "host" and not possible:
        raise ConfigError(
            "policy.collect.backend: 'host' needs the CPU and a network without convolutions; use 'auto' or 'graph'"
        )
    if backend == "host" or (backend == "auto" and possible and small):
        network: Network = net.host()
        return network
    return GraphNetwork(net, name)


class GraphNetwork:
    """Runs a network as a graph.

    Pads batches to the next power of two, so that a handful of compilations serves any batch size.
    """

    def __init__(self, net: nn.Cell, name: str) -> None:
        self._compiled = Compiled(_Graph(net), name, expected=8)
        self._shared = frozenset(net.shared_outputs)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        count = len(leaves[0])
        size = 1 << (count - 1).bit_length()
        if size != count:
            leaves = [np.concatenate([x, np.zeros((size - count, *x.shape[1:]), x.dtype)]) for x in leaves]
        outputs = self._compiled(*[runtime.to_device(_narrow(x)) for x in leaves])
        arrays = [o.asnumpy() for o in outputs]
        return tuple((a if i in self._shared else a[:count]).copy() for i, a in enumerate(arrays))


def _narrow(x: Array) -> Array:
    return x.astype(np.int32) if x.dtype == np.int64 else x
