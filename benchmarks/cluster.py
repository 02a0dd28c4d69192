"""What Ray costs and what it survives: ``python -m benchmarks.cluster``, all or some of the following.

- calls: a request with 1 MB of weights to 8 workers and a rollout of 1 MB back from each, against actors of Ray that
  do nothing else with the same bytes, alternating.
- intake: rollouts per second that one main process takes in from collectors that make them at once, in processes and on
  Ray, alternating.
- faults: seconds from the death of an actor, the death of its machine and the freezing of its machine until the next
  rollout, with machines that are simulated on this one; the rows of all runs must be those of a run that nothing
  happened to.
- growth: memory of the main process and of the object store over 2,000 iterations, after the first 200.
- bits: 60 iterations of four presets with 4 shards, in processes, on a local cluster, and on three machines, where two
  actors and then a machine are killed: the states and tables at the end must be equal.
- resume: three machines, then processes, then three machines again, against one run in processes.

What is measured is printed; it stands in ``docs/results/ray_clusters.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fingerprint import fingerprint, tables_fingerprint
from minding import training
from minding.configs import compile_run, load_preset
from minding.engine import OnlineRLContext, Task, declare
from minding.engine.chain.context import LearningContext
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.engine.lanes.ray.cluster import _stay_within_this_machine
from minding.engine.run.run_dir import RunDir
from minding.engine.types import LaneContext
from minding.training.session import Session

_MB = 1 << 20
_WORKERS = 8
_STEPS = 20
"""Iterations of a run to which something happens."""
INTAKES = (
    (1 << 10, 1 << 10, 2),
    (100 << 10, 1 << 10, 2),
    (_MB, 1 << 10, 2),
    (10 * _MB, 1 << 10, 2),
    (1 << 10, 10 * _MB, 2),
    (1 << 10, 10 * _MB, 8),
    (1 << 10, 1 << 10, 32),
)
"""Bytes of a rollout, bytes of the weights, and collectors."""


class Weights:
    """A policy of one array; travels as a factory."""

    def __init__(self, size: int) -> None:
        self.arrays = {"w": np.zeros(size // 4, np.float32)}

    def factory(self) -> Any:
        return remake_weights

    def weights(self) -> dict[str, Any]:
        return self.arrays


def remake_weights(lane: LaneContext) -> Weights:
    made = Weights(0)
    made.arrays = dict(lane.weights)
    return made


@declare(role="collect", reads=("env_step",), writes=("trajectories", "env_step"))
class Collector:
    """Returns so many bytes.

    Args:
      weights: reads them.
      size: bytes.
      folder: where a worker writes its process id.
      work: seconds that a rollout takes.
    """

    def __init__(self, weights: Weights, size: int, folder: str = "", work: float = 0.0) -> None:
        self._weights, self._size, self._folder, self._work = weights, size, folder, work
        self._count = 0

    def __call__(self, ctx: Any) -> None:
        if self._folder:
            (Path(self._folder) / "pid").write_text(f"{os.getpid()} {os.getppid()}")
        time.sleep(self._work)
        self._count += 1
        ctx.trajectories = {"x": np.full(self._size // 4, self._weights.arrays["w"][0] + self._count, np.float32)}
        ctx.env_step += 1

    def state_dict(self) -> dict[str, int]:
        return {"count": self._count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._count = state["count"]


@declare(role="learn", reads=("trajectories",), writes=("train_iter",))
class Learner:
    """Changes the weights and notes when a rollout came.

    Args:
      weights: it changes.
      rows: of time and first number of each rollout.
      task: runs it.
      each: is called in each iteration.
    """

    def __init__(self, weights: Weights, rows: list[tuple[float, float]], task: Task[Any], each: Any) -> None:
        self._weights, self._rows, self._task, self._each = weights, rows, task, each

    def __call__(self, ctx: Any) -> None:
        self._rows.append((time.monotonic(), float(ctx.trajectories["x"][0])))
        self._weights.arrays["w"] += 1.0
        ctx.train_iter += 1
        self._each(self._task, ctx)


def play(lanes: dict[str, Any], steps: int, *, size: int, folder: str = "", work: float = 0.0,
         each: Any = lambda task, ctx: None, weighs: int | None = None) -> list[tuple[float, float]]:  # fmt: skip
    """Runs a chain of a collector and a learner that changes the weights; returns (time, first number) of rollouts."""
    weights, task = Weights(size if weighs is None else weighs), Task()
    rows: list[tuple[float, float]] = []

    with task.start(True, OnlineRLContext(), lanes={"max_staleness": 0, **lanes}):
        task.use(Collector(weights, size, folder, work)).use(Learner(weights, rows, task, each)).run(max_step=steps)
    return rows


@contextlib.contextmanager
def three_machines(cpus: int = 2) -> Iterator[Any]:
    """One for the learner and two with CPUs, simulated on this one; without a token, on the loopback address."""
    _stay_within_this_machine()
    os.environ["RAY_AUTH_MODE"] = "disabled"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            made.add_node(num_cpus=cpus)
        yield made
    finally:
        made.shutdown()


def lanes_of(cluster: Any, **options: Any) -> dict[str, Any]:
    return {"transport": "ray", "address": cluster.address, "insecure": True, **options}


def calls(rounds: int = 40) -> None:
    """A round of 8 calls through the transport and through bare actors, alternating."""
    from minding.engine.lanes.ray.transport import RayTransport
    from minding.engine.lanes.transport import Request

    transport = RayTransport("local")
    weights = Weights(_MB)
    store = transport.store(weights.arrays, 3)
    store.publish(weights.arrays)
    import ray

    class Bare:
        def call(self, weights: Any) -> Any:
            return np.full(_MB // 4, weights[0], np.float32)

    bare = ray.remote(num_cpus=0)(Bare)
    actors = [bare.remote() for _ in range(_WORKERS)]
    workers = [_worker(transport, store, weights, k) for k in range(_WORKERS)]
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(rounds + 5):
        weights.arrays["w"] += 1.0
        begin = time.perf_counter()
        store.publish(weights.arrays)
        snapshots = [store.retain() for _ in workers]
        for worker, snapshot in zip(workers, snapshots):
            worker.channel.send(
                Request(number, snapshot.version, {"env_step": 0, "total_step": number}), snapshot.place
            )
        answers = [worker.channel.receive(60.0) for worker in workers]
        middle = time.perf_counter()
        place = ray.put(weights.arrays["w"])
        got = [np.array(array) for array in ray.get([actor.call.remote(place) for actor in actors])]
        end = time.perf_counter()
        for snapshot in snapshots:
            store.release(snapshot)
        assert len(answers) == len(got)
        if number >= 5:
            times["ours"].append(1e3 * (middle - begin))
            times["bare"].append(1e3 * (end - middle))
    ratios = sorted(ours / alone for ours, alone in zip(times["ours"], times["bare"]))
    print(
        f"calls, n={rounds}: ours {statistics.median(times['ours']):.1f} ms, bare "
        f"{statistics.median(times['bare']):.1f} ms; ratio {statistics.median(ratios):.2f} "
        f"({ratios[len(ratios) // 10]:.2f} - {ratios[-1 - len(ratios) // 10]:.2f}, 10 % to 90 %)"
    )
    transport.close()


def _worker(transport: Any, store: Any, weights: Weights, index: int) -> Any:
    import pickle

    import cloudpickle

    from minding.engine.lanes.shipping import PickledMembers
    from minding.engine.lanes.worker import WorkerPlan

    plan = WorkerPlan(
        lane="collect", index=index, names=("Collector",), keys=("0:Collector",),
        members=PickledMembers([Collector(weights, _MB)], "collect"), context=OnlineRLContext,
        outputs=("trajectories", "env_step"), written=("trajectories", "env_step"), depth=2, own_process=True,
    )  # fmt: skip
    worker = transport.start(f"collector {index}", store, 2, frozenset())
    worker.channel.send(pickle.dumps((cloudpickle.dumps(plan), None)))
    return worker


def intake(pairs: int = 3, steps: int = 200, first: int = 20) -> None:
    """Rollouts per second of runs whose collectors and learner do nothing else, in alternating pairs."""
    for size, weighs, collectors in INTAKES:
        rates: dict[str, list[float]] = {"processes": [], "ray": []}
        for _ in range(pairs):
            for transport, found in rates.items():
                ahead = max(1, collectors - 1)
                lanes = {"transport": transport, "collectors": collectors, "max_staleness": ahead, "start_timeout": 600}
                times = [moment for moment, _ in play(lanes, steps + ahead, size=size, weighs=weighs)][first + ahead :]
                found.append((len(times) - 1) / (times[-1] - times[0]))
        sides = ", ".join(f"{name} {_spread(found, ',.0f')} rollouts/s" for name, found in rates.items())
        ratios = [one / other for one, other in zip(*rates.values(), strict=True)]
        print(
            f"intake, n={pairs} pairs, rollouts of {size / _MB:.3g} MB, weights of {weighs / _MB:.3g} MB, {collectors} "
            f"collectors: {sides}; ratio {_spread(ratios)}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def faults(repeats: int = 3) -> None:
    """What is done to a worker or its machine, and how long the run takes until its next rollout."""
    calm = [value for _, value in play({}, _STEPS, size=4096, work=0.05)]
    for what, limit in (("actor killed", 30.0), ("machine killed", 30.0), ("machine frozen", 5.0)):
        took = []
        for _ in range(repeats):
            with three_machines() as cluster, tempfile.TemporaryDirectory() as folder:
                took.append(_fault(what, limit, cluster, folder, calm))
        print(f"{what} (lanes.timeout={limit:g}), n={repeats}: next rollout after {_spread(took)} s")


def _fault(what: str, limit: float, cluster: Any, folder: str, calm: list[float]) -> float:
    happened: list[float] = []
    stopped: list[int] = []

    def each(task: Any, ctx: Any) -> None:
        if ctx.total_step == _STEPS // 2 and not happened:
            worker, machine = map(int, (Path(folder) / "pid").read_text().split())
            if what == "machine frozen":
                stopped.extend((machine, worker))
            for pid in {"actor killed": [worker], "machine killed": [machine, worker]}.get(what, stopped):
                os.kill(pid, signal.SIGSTOP if what == "machine frozen" else signal.SIGKILL)
            happened.append(time.monotonic())

    try:
        rows = play(lanes_of(cluster, timeout=limit), _STEPS, size=4096, folder=folder, work=0.05, each=each)
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert [value for _, value in rows] == calm
    return next(moment for moment, _ in rows if moment > happened[0]) - happened[0]


def growth(steps: int = 2000, first: int = 200) -> None:
    """Memory of this process, and of the object store, over a run with rollouts of 100 KB and weights of 100 KB."""
    import psutil

    seen = {}

    def each(task: Any, ctx: LearningContext) -> None:
        if ctx.total_step + 1 in (first, steps):
            import ray

            store = ray.cluster_resources()["object_store_memory"] - ray.available_resources()["object_store_memory"]
            seen[ctx.total_step + 1] = psutil.Process().memory_info().rss / _MB, store / _MB

    begin = time.monotonic()
    _stay_within_this_machine()
    import ray  # noqa: F401 - brings psutil along

    play({"transport": "ray", "max_staleness": 1, "collectors": 2}, steps, size=100 * 1024, each=each)
    print(
        f"growth over iterations {first} to {steps} ({time.monotonic() - begin:.0f} s): main process "
        f"{seen[steps][0] - seen[first][0]:+.1f} MB of {seen[first][0]:.0f}, object store "
        f"{seen[steps][1] - seen[first][1]:+.1f} MB of {seen[first][1]:.1f}"
    )


def bits(steps: int = 60) -> None:
    """The same run in processes, on a local cluster, and on machines that die."""
    for preset in ("cartpole_ppo", "cartpole_dqn", "pendulum_sac", "cartpole_impala"):
        with tempfile.TemporaryDirectory() as out:
            settings = ["lanes.async_mode=true", "lanes.shards=4", "lanes.collectors=4", "env.collector_env_num=8"]
            settings += [f"run.max_step={steps}", f"run.out_dir={out}", "policy.eval.n_episode=2"]
            if preset == "pendulum_sac":
                settings.append("policy.collect.n_sample=32")
            found = [_outcome(preset, settings, "processes")]
            found.append(_outcome(preset, [*settings, "lanes.transport=ray"], "local"))
            with three_machines(cpus=6) as cluster:
                where = ["lanes.transport=ray", f"lanes.address={cluster.address}", "lanes.insecure=true"]
                killer = Killer()
                found.append(_outcome(preset, [*settings, *where], "machines", killer))
        assert killer.left == []
        differ = [name for other in found[1:] for name in found[0] | other if found[0].get(name) != other.get(name)]
        print(
            f"bits, {preset}: {len(found[0])} leaves and columns, {len(differ)} differ {differ[:5]}; "
            f"iteration after the machine died {killer.gap:.1f} s",
            flush=True,
        )


class Killer:
    """Kills two actors and then a machine with its actors, each in the middle of an iteration."""

    def __init__(self) -> None:
        self.left = [(20, "actor"), (30, "actor"), (40, "machine")]
        self.task: Any = None
        self.gap, self._seen = 0.0, time.monotonic()

    def __call__(self, ctx: Any) -> None:
        now = time.monotonic()
        if not self.left:
            # Some rollouts were there already.
            self.gap = max(self.gap, now - self._seen)
        self._seen = now
        if self.left and ctx.total_step == self.left[0][0]:
            _, what = self.left.pop(0)
            victim = self.task.lanes.workers[len(self.left)].pid
            machine = int(Path(f"/proc/{victim}/stat").read_text().rpartition(")")[2].split()[1])
            for pid in [machine, victim] if what == "machine" else [victim]:
                os.kill(pid, signal.SIGKILL)


def _outcome(preset: str, settings: list[str], name: str, killer: Killer | None = None) -> dict[str, str]:
    cfg = compile_run(load_preset(preset), [*settings, f"exp_name={name}"])
    run_dir = RunDir.create(cfg)
    with Session(cfg, run_dir, progress=False, use=[] if killer is None else [killer]) as session:
        if killer is not None:
            killer.task = session.task
        session.run()
        if killer is not None:
            assert session.task.lanes is not None
            assert session.task.lanes.restarts >= 3
    state = fingerprint(load_checkpoint(newest_checkpoint(run_dir.checkpoints))[0])
    # The settings say where workers run, and the chain has another member.
    state = {leaf: digest for leaf, digest in state.items() if leaf.split("/")[0] != "config" and leaf != "task/chain"}
    return {**state, **tables_fingerprint(run_dir)}


def resume(part: int = 10) -> None:
    """cartpole_ppo in three parts, on machines, in processes, on machines, against the same in one part."""
    with tempfile.TemporaryDirectory() as out:
        settings = [
            "lanes.async_mode=true",
            "lanes.shards=2",
            "lanes.collectors=2",
            "lanes.max_staleness=0",
            f"run.out_dir={out}",
        ]
        settings += ["policy.eval.n_episode=2", "policy.eval.freq=1000000", "run.max_env_step=100000"]
        whole = _train(settings, 3 * part, "whole")
        run_dir = None
        for number in range(3):
            with contextlib.ExitStack() as held:
                where = []
                if number != 1:
                    cluster = held.enter_context(three_machines())
                    where = ["lanes.transport=ray", f"lanes.address={cluster.address}", "lanes.insecure=true"]
                run_dir = _train([*settings, *where], (number + 1) * part, "parts", run_dir)
        state, parts = ([fingerprint(load_checkpoint(newest_checkpoint(each.checkpoints))[0]), tables_fingerprint(each)]
                        for each in (whole, run_dir))  # fmt: skip
        # The settings say where workers run.
        state = [{name: leaf for name, leaf in state[0].items() if not name.startswith("config/")}, state[1]]
        differ = [name for one, other in zip(state, parts) for name in one.keys() | other.keys()
                  if one.get(name) != other.get(name) and not name.startswith("config/")]  # fmt: skip
        print(f"resume: {len(state[0])} leaves and {len(state[1])} columns compared, {len(differ)} differ {differ[:8]}")


def _train(settings: list[str], until: int, name: str, run_dir: RunDir | None = None) -> RunDir:
    cfg = compile_run(load_preset("cartpole_ppo"), [*settings, f"run.max_step={until}", f"exp_name={name}"])
    resumed = None if run_dir is None else "latest"
    run_dir = run_dir or RunDir.create(cfg)
    training.train(cfg, run_dir, progress=False, resume=resumed)
    return run_dir


def _spread(values: list[float], form: str = ".1f") -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} - {max(values):{form}})"


def main() -> None:
    """Measures what is named on the command line, or all."""
    # Workers find this module by its name.
    from benchmarks import cluster

    names = ("calls", "intake", "faults", "growth", "bits", "resume")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"{', '.join(names)} (all)")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of intake (3)")
    args = parser.parse_args()
    if unknown := set(args.what) - set(names):
        parser.error(f"unknown {sorted(unknown)}; expected {', '.join(names)}")
    for name in args.what or names:
        options = {"pairs": args.pairs} if name == "intake" else {}
        getattr(cluster, name)(**options)


if __name__ == "__main__":
    main()
