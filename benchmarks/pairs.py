"""Runs both sides of a comparison in separate processes, A B A B ..., and keeps the pairs together."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.window import Measurement

ROOT = Path(__file__).resolve().parent.parent
PEER_MODULES = {
    "sb3": "benchmarks.peers.sb3",
    "sb3_contrib": "benchmarks.peers.sb3_contrib",
    "sbx": "benchmarks.peers.sbx",
    "cleanrl_style": "benchmarks.peers.cleanrl_style_ppo",
    "purejaxrl_style": "benchmarks.peers.purejaxrl_style_ppo",
    "pymarl_style": "benchmarks.peers.pymarl_style_qmix",
    "mappo_style": "benchmarks.peers.mappo_style",
    "jaxmarl_style": "benchmarks.peers.jaxmarl_style",
    "d3rlpy": "benchmarks.peers.d3rlpy",
    "xuance": "benchmarks.peers.xuance",
}


@dataclasses.dataclass(frozen=True)
class Home:
    """A virtual environment of peers.

    Attributes:
      variable: names its interpreter instead.
      folder: where it is made otherwise, in the repository root.
      packages: files of requirements, each with further arguments of pip.
    """

    variable: str
    folder: str
    packages: tuple[tuple[str, ...], ...]


HOME = Home("MINDING_PEERS_PYTHON", ".venv-peers", (("requirements.txt",), ("alone.txt", "--no-deps")))
HOMES = {"xuance": Home("MINDING_XUANCE_PYTHON", ".venv-xuance", (("xuance.txt",), ("xuance_alone.txt", "--no-deps")))}
"""Where peers live that need MindSpore, which is never installed beside the others; all others live in `HOME`."""


class RunFailed(RuntimeError):
    """A process of the benchmark ended badly; the message holds the end of what it said."""


@dataclasses.dataclass(frozen=True)
class Side:
    """How to start one side.

    Attributes:
      name: `minding` or the peer's name.
      command: interpreter and module; the case's arguments follow.
      environment: variables on top of the inherited ones.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def ours(cls) -> Side:
        return cls("minding", (sys.executable, "-m", "benchmarks.ours"), {"PYTHONPATH": str(ROOT / "src")})

    @classmethod
    def peer(cls, name: str, python: str, threads: int) -> Side:
        """A peer that may use that many threads in torch, in its linear algebra libraries and in XLA."""
        count = str(threads)
        return cls(
            name,
            (python, "-m", PEER_MODULES[name]),
            {"PYTHONPATH": "", "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count},
        )


def call(command: list[str], environment: dict[str, str], timeout: float) -> str:
    """Runs ``python -m module ...`` or ``python -c script`` in the repository root; returns what it printed.

    Raises:
      RunFailed: it could not start, took longer than `timeout` seconds or returned an error; ends with the
        last line of its errors, without the repository's folder, since the message goes into the report.
    """
    what = command[2] if command[1] == "-m" else "python"
    full = {**os.environ, **environment}
    try:
        done = subprocess.run(command, cwd=ROOT, env=full, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{what} took longer than {timeout:g} s; raise --timeout") from error
    except OSError as error:
        raise RunFailed(f"{what} cannot be started by {command[0]}: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunFailed(f"{what} returned {done.returncode}: {last.replace(f'{ROOT}/', '')}")
    return done.stdout


def run_side(side: Side, case: Case, seed: int, scale: float, timeout: float) -> Measurement:
    """Times one process of one side.

    Raises:
      RunFailed: the process failed or printed no measurement of this case and side.
    """
    arguments = [case.name, "--seed", str(seed), "--scale", str(scale)]
    lines = call([*side.command, *arguments], side.environment, timeout).strip().splitlines()
    try:
        measurement = Measurement.from_json(lines[-1] if lines else "")
    except ValueError as error:
        raise RunFailed(f"{side.name} on {case.name}: {error}") from error
    if (measurement.case, measurement.peer) != (case.name, side.name):
        raise RunFailed(f"asked {side.name} for {case.name}, got {measurement.peer} on {measurement.case}")
    return measurement


@dataclasses.dataclass
class Comparison:
    """The pairs of one case against one peer.

    Attributes:
      case: name of the case.
      peer: name of the peer.
      target: median ratio to reach.
      ours: measurements of minding, one a complete pair.
      theirs: measurements of the peer, in the same order.
      error: why the comparison ended early, or None.
    """

    case: str
    peer: str
    target: float
    ours: list[Measurement] = dataclasses.field(default_factory=list)
    theirs: list[Measurement] = dataclasses.field(default_factory=list)
    error: str | None = None

    @property
    def ratios(self) -> list[float]:
        """Our speed over the peer's, pair by pair."""
        return [a.steps_per_second / b.steps_per_second for a, b in zip(self.ours, self.theirs, strict=True)]

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None when a run failed."""
        if self.error or not self.ours:
            return None
        return statistics.median(self.ratios) >= self.target


def median_rate(measurements: list[Measurement]) -> float:
    """Median env steps per second."""
    return statistics.median(m.steps_per_second for m in measurements)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the pairs are run.

    Attributes:
      pairs: pairs a comparison.
      scale: length of the timed windows, in units of each case's own.
      peers_python: interpreter that has torch, jax and the peers.
      timeout: seconds after which a process is ended.
      pythons: interpreters of the peers that live elsewhere.
    """

    pairs: int
    scale: float
    peers_python: str
    timeout: float
    pythons: Mapping[str, str] = dataclasses.field(default_factory=dict)


def compare(case: Case, peer: str, plan: Plan, tell: Callable[[str], None]) -> Comparison:
    """Runs `plan.pairs` pairs; the first failure ends the comparison and is kept in `error`.

    Args:
      case: the work.
      peer: who to compare with.
      plan: how often and how long.
      tell: told one line after every pair.
    """
    result = Comparison(case.name, peer, case.targets[peer])
    ours, theirs = Side.ours(), Side.peer(peer, plan.pythons.get(peer, plan.peers_python), case.threads)
    for pair in range(1, plan.pairs + 1):
        try:
            # The pair's number seeds both sides, so that pairs differ and the halves of a pair do not.
            a, b = (run_side(side, case, pair, plan.scale, plan.timeout) for side in (ours, theirs))
        except RunFailed as error:
            result.error = str(error)
            tell(f"{case.name} against {peer}: {error}")
            break
        result.ours.append(a)
        result.theirs.append(b)
        tell(
            f"{case.name} against {peer}, pair {pair}: {a.steps_per_second:,.0f}/s against "
            f"{b.steps_per_second:,.0f}/s, {result.ratios[-1]:.2f}x"
        )
    return result


def comparisons(cases: list[Case]) -> Iterator[tuple[Case, str]]:
    """Every case with each of its peers."""
    for case in cases:
        for peer in case.targets:
            yield case, peer


def find_peers_python(tell: Callable[[str], None], home: Home = HOME) -> str:
    """Returns the interpreter of the peers that live in `home`, making their virtual environment on first use.

    Raises:
      RunFailed: the variable points nowhere, or the environment cannot be made.
    """
    chosen = os.environ.get(home.variable)
    if chosen:
        if not Path(chosen).is_file():
            raise RunFailed(f"${home.variable} must be a Python interpreter, no such file: {chosen!r}")
        return chosen
    folder = ROOT / home.folder
    ready = folder / "installed"
    python = str(folder / "bin" / "python")
    if not ready.exists():
        tell(f"making {folder.name} for the peers of {home.packages[0][0]}; this takes minutes")
        call([sys.executable, "-m", "venv", "--clear", str(folder)], {}, timeout=300)
        for name, *how in home.packages:
            install = [python, "-m", "pip", "install", "-q", *how, "-r", str(ROOT / "benchmarks" / "peers" / name)]
            call(install, {"PYTHONPATH": ""}, timeout=3600)
        # Written last, so that an interrupted installation is made again instead of used.
        ready.touch()
    return python
