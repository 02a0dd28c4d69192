"""Transports by name; a transport is imported when it is chosen."""

from __future__ import annotations

from collections.abc import Callable

from minding.engine.lanes.options import LaneOptions
from minding.engine.lanes.transport import Transport


def make_transport(options: LaneOptions) -> Transport:
    """Returns the transport that the options name, with its settings."""
    return _OF_NAME[options.transport](options)


def _processes(options: LaneOptions) -> Transport:
    from minding.engine.lanes.processes import ProcessTransport

    return ProcessTransport()


def _threads(options: LaneOptions) -> Transport:
    from minding.engine.lanes.threads import ThreadTransport

    return ThreadTransport()


def _ray(options: LaneOptions) -> Transport:
    from minding.engine.lanes.ray.transport import RayTransport

    return RayTransport(options.address, options.insecure)


def check_transport(options: LaneOptions) -> None:
    """Refuses a transport that cannot work on this machine, before anything is built.

    Raises:
      MissingExtraError: a package that it needs is not installed.
      ConfigError: its cluster cannot be reached, or a token is missing.
    """
    if options.transport == "ray":
        from minding.engine.lanes.ray.cluster import check_ray

        check_ray(options.address, options.insecure)


_OF_NAME: dict[str, Callable[[LaneOptions], Transport]] = {"processes": _processes, "threads": _threads, "ray": _ray}
