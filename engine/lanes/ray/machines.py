"""The machines of a cluster: their free CPUs, whether they can run workers of a run, and modules that they lack."""

import collections
import io
import logging
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minding.engine.errors import ConfigError, LaneError

_log = logging.getLogger("minding.lanes")
_PACKAGES = ("minding", "numpy", "ray", "mindspore")
"""Packages that must have the same version on all machines; only some workers need the last one."""
_ANSWER = 60.0  # s
_AVOIDED = 60.0  # s
_COUNTED = 5.0  # s


def _free(ray: Any) -> Mapping[str, Mapping[str, float]]:
    """The free resources of each machine by its id. What is public adds up all machines, or needs the dashboard."""
    free: Mapping[str, Mapping[str, float]] = ray._private.state.available_resources_per_node()
    return free


def free_cpus(ray: Any) -> list[tuple[str, float, float]]:
    """Name, free CPUs and CPUs of each running machine."""
    free = _free(ray)
    return [
        (_name(node), free.get(node["NodeID"], {}).get("CPU", 0.0), node["Resources"].get("CPU", 0.0))
        for node in ray.nodes()
        if node["Alive"]
    ]


class Places:
    """The choice of machines for workers: Ray's own, but for a while not a machine on which a worker was lost.

    Ray notices the death of a machine only after some 15 s, and until then tries to start actors there. Once a machine
    was lost, or if there are fewer CPUs than workers from the start, a worker for which no CPU is free shares those of
    another machine.
    """

    def __init__(self) -> None:
        self.scarce = False
        self._lost: dict[str, float] = {}
        self._given: list[tuple[float, str]] = []
        self._shared: collections.Counter[str] = collections.Counter()

    def lost(self, machine: str) -> None:
        """Notes the machine of a worker that did not end by itself; the name is empty if it had no machine yet."""
        if machine:
            self._lost[machine] = time.monotonic()
            self.scarce = True

    def choose(self, ray: Any, cpus: int) -> tuple[Any, int]:
        """Ray's strategy for a worker, and the number of CPUs that it takes: `cpus`, or 0 if it has to share."""
        if not self.scarce:
            return "DEFAULT", cpus
        rooms = self._rooms(ray, cpus)
        best = max(rooms, key=lambda machine: rooms[machine], default="")
        if not best:
            return "DEFAULT", cpus
        if rooms[best] < cpus:
            best = min(rooms, key=lambda machine: self._shared[machine])
            self._shared[best] += 1
            cpus = 0
        else:
            self._given.append((time.monotonic(), best))
        return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(best, soft=True), cpus

    def has_room(self, ray: Any, cpus: int) -> bool:
        """Whether a machine has free CPUs for a worker."""
        return max(self._rooms(ray, cpus).values(), default=0.0) >= cpus

    def _rooms(self, ray: Any, cpus: int) -> dict[str, float]:
        """The free CPUs of each running machine with CPUs that is not avoided."""
        now = time.monotonic()
        self._lost = {machine: when for machine, when in self._lost.items() if now - when < _AVOIDED}
        # CPUs that were assigned a moment ago may not be counted yet.
        self._given = [(when, machine) for when, machine in self._given if now - when < _COUNTED]
        taken = collections.Counter(machine for _, machine in self._given)
        free = _free(ray)
        return {
            node["NodeID"]: free.get(node["NodeID"], {}).get("CPU", 0.0) - cpus * taken[node["NodeID"]]
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU") and node["NodeID"] not in self._lost
        }


def is_placed(ray: Any, actor: Any) -> bool:
    """Whether an actor has a process, or had one. The public `ray.util.state.get_actor` needs the dashboard."""
    state = ray._private.state.actors(actor._actor_id.hex())
    return bool(state.get("Pid")) or state.get("State") == "DEAD"


def inspect(ray: Any, workers: int, cpus: int, address: str, places: Places) -> tuple[str, ...]:
    """Compares all machines of a cluster with this one."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    present = int(sum(node["Resources"].get("CPU", 0.0) for node in nodes))
    if cpus > present:
        raise ConfigError(
            f"lanes.address={address!r}: a worker takes {'a CPU' if cpus == 1 else f'{cpus} CPUs'}, and the cluster "
            f"has {present}: add machines with `ray start --address={address}`"
        )
    if workers * cpus > present:
        places.scarce = True
        _log.warning(
            "the run has %d workers, and the cluster %d CPUs: workers share them, which is slower but changes no "
            "result; they move when machines join (`ray start --address=%s`)",
            workers,
            present,
            address,
        )
    here = describe(_PACKAGES)
    look = ray.remote(num_cpus=0, max_retries=0)(_look_function())
    answers = []
    for node in nodes:
        there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answers.append(look.options(scheduling_strategy=there).remote(_PACKAGES))
    found, silent, left, deadline = {}, "", 0.0, time.monotonic() + _ANSWER
    for node, answer in zip(nodes, answers, strict=True):
        try:
            found[_name(node)] = ray.get(answer, timeout=max(0.0, deadline - time.monotonic()))
            left += node["Resources"].get("CPU", 0.0)
        except ray.exceptions.RayError as error:
            # It may have died a moment ago: Ray takes up to 40 s to notice that.
            silent = f"machine {_name(node)} of the cluster does not answer: {str(error).splitlines()[-1]}"
            places.lost(node["NodeID"])
            _log.warning("%s; workers start on the others", silent)
    if left < cpus:
        raise LaneError(f"{silent}; no other machine has a CPU for a worker")
    return compare(here, found)


def check_resources(nodes: Sequence[Mapping[str, Any]], kind: str, wanted: Mapping[str, float]) -> None:
    """Refuses resources of a kind of worker that no machine offers together."""
    offered = [node["Resources"] for node in nodes if node["Alive"]]
    if any(all(there.get(name, 0.0) >= number for name, number in wanted.items()) for there in offered):
        return
    known = sorted({name for there in offered for name in there if ":" not in name})
    asked = ", ".join(f"{number:g} {name}" for name, number in wanted.items())
    raise ConfigError(
        f"lanes.resources: no machine of the cluster offers {asked} to "
        f"one {kind}; the machines offer {', '.join(known)}: start one with `ray start --resources=JSON`"
    )


def compare(here: Mapping[str, str], found: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """The kinds of processor, this machine's first; warns if there are several."""
    for name, there in found.items():
        for what, version in here.items():
            optional = what == "mindspore" and not (version and there[what])
            if what != "processor" and not optional and there[what] != version:
                raise ConfigError(
                    f"machine {name} of the cluster has {what} {there[what] or 'not installed'}, this one {version}: "
                    "install the same version on both"
                )
    kinds = dict.fromkeys([here["processor"], *(there["processor"] for there in found.values())])
    if len(kinds) > 1:
        _log.warning(
            "the machines of the cluster have different processors (%s): the run repeats bit for bit only where each "
            "worker runs on the same kind again",
            ", ".join(kinds),
        )
    return tuple(kinds)


def describe(packages: Sequence[str]) -> dict[str, str]:
    """Versions and processor of this machine; a package that is missing has an empty version."""
    return _look_function()(packages)


def _look_function() -> Callable[[Sequence[str]], dict[str, str]]:
    """A function that is sent by value, since a machine may have no minding, or another version."""

    def look(packages: Sequence[str]) -> dict[str, str]:
        import importlib.metadata
        import platform
        from pathlib import Path

        found = {"Python": platform.python_version()}
        for package in packages:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found[package] = ""
        model, info = platform.machine(), Path("/proc/cpuinfo")
        if info.exists():
            names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
            model = f"{names[0] if names else 'unknown'} ({model})"
        return {**found, "processor": model}

    return look


def wanted_place(ray: Any, cpus: float) -> str:
    """The resources that a worker without a place requests, and the available ones."""
    free = [f"{name} has {now:g} of {total:g}" for name, now, total in free_cpus(ray)]
    return f"it asks for {cpus:g} free CPU{'s' if cpus > 1 else ''}, and {', '.join(free) or 'no machine runs'}"


def _name(node: Mapping[str, Any]) -> str:
    return str(node["NodeManagerHostname"])


_LARGEST = 64 << 20
"""Bytes of all files together: what is larger is hardly code."""
_kept: list[tempfile.TemporaryDirectory[str]] = []
"""The unpacked folders of this process, which are removed at its end."""


def pack(folder: Path) -> bytes:
    """The files of a folder as a zip archive, without hidden files and compiled code."""
    if not folder.is_dir():
        raise ConfigError(f"lanes.code={str(folder)!r}: expected a folder with modules, as an entry of sys.path")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_wanted(path.relative_to(folder))]
    if not any(path.suffix == ".py" for path in files):
        raise ConfigError(f"lanes.code={str(folder)!r}: there is no module (*.py) in this folder")
    size = sum(path.stat().st_size for path in files)
    if size > _LARGEST:
        raise ConfigError(
            f"lanes.code={str(folder)!r} holds {size >> 20} MB, and at most {_LARGEST >> 20} MB are sent: give a "
            "folder with the modules only"
        )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files:
            packed.write(path, path.relative_to(folder))
    return archive.getvalue()


def _is_wanted(path: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def unpack(code: bytes) -> str:
    """Writes what `pack` returned to a temporary folder, which is removed with this process; returns its path."""
    _kept.append(tempfile.TemporaryDirectory(prefix="minding-code-"))
    with zipfile.ZipFile(io.BytesIO(code)) as packed:
        packed.extractall(_kept[-1].name)
    return _kept[-1].name
