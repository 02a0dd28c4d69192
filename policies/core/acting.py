"""The networks of acting policies: NumPy on views of the live parameters, or a compiled graph."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.data.observation import Leaf
from minding.engine.errors import ConfigError
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.runtime import ms, nn
from minding.engine.types import Array
from minding.policies.acting.actors import Network, Outputs
from minding.policies.core.numpy_form import NoNumpyForm, UnlikeNumpyForm, narrow, numpy_form

_log = logging.getLogger("minding.policies")
_HOST_LIMIT = 1_000_000
"""Number of weights up to which NumPy is faster than dispatching a compiled graph on CPU."""


class _Graph(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.net = net

    @ms.jit
    def construct(self, *obs):
        return self.net(obs)


def acting_network(net: Any, backend: str, name: str, leaves: Sequence[Leaf] = ()) -> Network:
    """A function from observation leaves, each ``(B, ...)``, to the network's outputs as NumPy arrays.

    Args:
      net: a cell that returns a tuple of arrays.
      backend: 'graph', 'host' or 'auto'. 'auto' means 'host' on CPU for a small network whose NumPy form computes the
        same as the network (see `numpy_form`), else 'graph'. If the NumPy form computes something else, a warning is
        logged.
      name: name of the algorithm, for messages.
      leaves: leaves of the observation that the network takes; needed if a cell of it is from neither this package nor
        MindSpore.

    Raises:
      ConfigError: if `backend` is 'host', but the network has no usable NumPy form or the device is not the CPU.
    """
    if backend == "graph" or (backend == "auto" and not _suits_numpy(net)):
        return GraphNetwork(net, name)
    fault, unlike = "the device is not the CPU", False
    if runtime.device() == "CPU":
        try:
            return numpy_form(net, leaves)
        except NoNumpyForm as error:
            fault = str(error)
            unlike = isinstance(error, UnlikeNumpyForm)
    if backend == "host":
        raise ConfigError(
            f"policy.collect.backend='host': the network has to compute in NumPy, and {fault}: use 'auto' or 'graph'"
        )
    if unlike:
        _log.warning("%s: the network acts through its graph, as with policy.collect.backend=graph: %s", name, fault)
    return GraphNetwork(net, name)


def _suits_numpy(net: Any) -> bool:
    return runtime.device() == "CPU" and sum(p.size for p in net.get_parameters()) <= _HOST_LIMIT


class GraphNetwork:
    """Runs a network as a graph.

    Pads batches to the next power of two, so that a few compilations serve every batch size.
    """

    def __init__(self, net: nn.Cell, name: str) -> None:
        self._compiled = Compiled(_Graph(net), name, expected=8)
        self._shared = frozenset(net.shared_outputs)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        count = len(leaves[0])
        size = 1 << (count - 1).bit_length()
        if size != count:
            leaves = [np.concatenate([x, np.zeros((size - count, *x.shape[1:]), x.dtype)]) for x in leaves]
        outputs = self._compiled(*[runtime.to_device(narrow(x)) for x in leaves])
        arrays = [o.asnumpy() for o in outputs]
        return tuple((a if i in self._shared else a[:count]).copy() for i, a in enumerate(arrays))
