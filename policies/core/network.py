"""The interface of networks that act."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from minding.engine.errors import ConfigError
from minding.policies.networks.actor_critic import Decision

_ASKED = {
    "memory_size": "size of the memory of each environment, 0 without memory",
    "shared_outputs": "indices of the outputs that have no batch axis, mostly ()",
    "decision": "which output decides the action without exploration, a policies.networks.actor_critic.Decision",
}


class ActingNetwork(Protocol):
    """A cell that acts, as returned by `BasePolicy.make_network`.

    Called with the arrays of an observation, ``(B, ...)`` each and including action masks, it returns a tuple of
    arrays, ``(B, ...)`` each except `shared_outputs`. A network with noisy layers has an attribute `noise_size`; to
    explore, it takes the noise ``(B, noise_size)`` as a further array. A network with a memory takes the memory,
    float32 ``(B, memory_size)``, as the last array and returns the new memory as the last output.

    A network with a method ``host()`` may act in NumPy: the method returns a picklable function with the same inputs
    and outputs on views of the live parameters (see `core.numpy_form`). Without this method, the network acts through
    its compiled graph.
    """

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an environment; 0 without memory."""
        ...

    @property
    def shared_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that have no batch axis, such as a standard deviation that is a parameter."""
        ...

    @property
    def decision(self) -> Decision:
        """Which output decides the action without exploration; exported files contain this output."""
        ...

    def __call__(self, leaves: Any) -> Any: ...

    def get_parameters(self, expand: bool = True) -> Iterator[Any]:
        """As in `mindspore.nn.Cell`."""
        ...

    def cells_and_names(self, cells: Any = None, name_prefix: str = "") -> Iterator[tuple[str, Any]]:
        """As in `mindspore.nn.Cell`."""
        ...


def check_network(net: Any, algorithm: str) -> None:
    """Refuses a network that lacks an attribute of `ActingNetwork`.

    Raises:
      ConfigError: if an attribute is missing, with the network's class and the attribute's meaning, or if `memory_size`
        is not an integer of 0 or more.
    """
    for name, what in _ASKED.items():
        if not hasattr(net, name):
            raise ConfigError(
                f"policy.type={algorithm!r}: the network {type(net).__name__} has no attribute {name!r} ({what}); "
                "policies.core.network.ActingNetwork lists the attributes of a network"
            )
    size = net.memory_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ConfigError(
            f"policy.type={algorithm!r}: {type(net).__name__}.memory_size: expected an integer of 0 or more, got "
            f"{size!r}"
        )
