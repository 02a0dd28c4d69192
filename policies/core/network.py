"""The interface of networks that act."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from minding.engine.errors import ConfigError
from minding.policies.networks.actor_critic import Decision

_ASKED = {
    "memory_size": "numbers that it remembers of an environment, 0 without memory",
    "shared_outputs": "indices of the outputs that have no batch axis, mostly ()",
    "decision": "which output decides the action without exploration, a policies.networks.actor_critic.Decision",
}


class ActingNetwork(Protocol):
    """A cell that acts: what `BasePolicy.make_network` returns.

    Called with the arrays of an observation, ``(B, ...)`` each and action masks among them, it returns a tuple of
    arrays, ``(B, ...)`` each but for `shared_outputs`. One with noisy layers explores with a further array, their noise
    ``(B, noise_size)``, which it says by an attribute `noise_size`. One with a memory takes what it remembers, float32
    ``(B, memory_size)``, as the last array, and returns its new value as the last output.

    One with a method ``host()`` may act in NumPy: it returns a picklable function of the same arrays and outputs on
    views of the live parameters (see `core.numpy_form`). Without it the network acts through its compiled graph.
    """

    @property
    def memory_size(self) -> int:
        """Numbers that it remembers of an environment; 0 without memory."""
        ...

    @property
    def shared_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that have no batch axis, such as a standard deviation that is a parameter."""
        ...

    @property
    def decision(self) -> Decision:
        """Which output decides the action without exploration; exported files hold it."""
        ...

    def __call__(self, leaves: Any) -> Any: ...

    def get_parameters(self, expand: bool = True) -> Iterator[Any]:
        """As of `mindspore.nn.Cell`."""
        ...

    def cells_and_names(self, cells: Any = None, name_prefix: str = "") -> Iterator[tuple[str, Any]]:
        """As of `mindspore.nn.Cell`."""
        ...


def check_network(net: Any, algorithm: str) -> None:
    """Refuses a network that lacks what `ActingNetwork` asks for.

    Raises:
      ConfigError: names the class, what it lacks, and what that is.
    """
    for name, what in _ASKED.items():
        if not hasattr(net, name):
            raise ConfigError(
                f"policy.type={algorithm!r}: the network {type(net).__name__} has no attribute {name!r} ({what}); "
                "policies.core.network.ActingNetwork says what a network has to give"
            )
    size = net.memory_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ConfigError(
            f"policy.type={algorithm!r}: {type(net).__name__}.memory_size: expected an integer of 0 or more, got "
            f"{size!r}"
        )
