"""Three simulated machines with Ray: faults on the learner's machine, and a machine that is lost for good.

``python -m proofs.three_machines``, at the root, as root on Linux with `ip` and `unshare`. A machine is a network
namespace with an address, a host name and a folder of Ray of its own; a bridge connects them. They share processor,
memory and clock. A cluster is started as ``docs/cluster.md`` says, with a token, and a run on it, or on a cluster that
it starts itself, loses a process of Ray (`FAULTS`). Then one machine is lost in the middle of runs of 20,000 steps,
which are compared with runs in processes. The results are ``docs/results/three_machines.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from minding.engine.checkpoint import newest_checkpoint, read_manifest, step_of
from minding.engine.errors import CheckpointError
from minding.engine.run.run_dir import RunDir
from proofs import pages
from proofs.kills import KillJob, command_of, outcome, train
from proofs.runs import ROOT, Record, Results, RunFailed, commit

NAME = "three_machines"
FAULTS = {
    "raylet killed": ("/raylet/raylet ", signal.SIGKILL, False),
    "raylet stopped": ("/raylet/raylet ", signal.SIGSTOP, False),
    "raylet stopped, then SIGINT": ("/raylet/raylet ", signal.SIGSTOP, True),
    "agent killed": ("/runtime_env/agent/", signal.SIGKILL, False),
    "GCS killed": ("/gcs/gcs_server ", signal.SIGKILL, False),
}
"""The program of a process of Ray on the learner's machine, the signal that it gets, and whether the run is interrupted
a second later."""
CASES = [f"{where}: {name}" for where in ("local", "joined") for name in FAULTS]
"""Each of them on a cluster that the run starts, and on one that it joins."""
_PARTS = ("policy.learn.n_minibatch=4", "lanes.shards=2")
_LOST = {
    "exact": ("cartpole_ppo", 1_248, ("policy.collect.n_sample=256", "policy.learn.n_epoch=4", *_PARTS)),
    "arrival": ("cartpole_dqn", 10_000, ("lanes.max_staleness=3",)),
}
"""By `lanes.order`: the preset, about how many gradient steps it makes, and its settings."""
STEPS = 20_000
_NET, _PORT = "10.213.7", 6379
_BRIDGE = f"{_NET}.254"
_RAY = str(Path(sys.executable).with_name("ray"))
_WAIT = 300.0  # s


@dataclasses.dataclass(frozen=True)
class Machine:
    """A simulated machine.

    Attributes:
      number: from 0 on; 0 is the learner's.
      folder: what it has as ``/tmp/ray``.
      environment: variables of its processes.
    """

    number: int
    folder: Path
    environment: dict[str, str]

    @property
    def name(self) -> str:
        return f"minding{self.number}"

    @property
    def address(self) -> str:
        return f"{_NET}.{self.number + 1}"

    def command(self, *words: str) -> list[str]:
        """The words of a command that runs there; it becomes the process that runs the words."""
        begin = 'hostname "$1" && mount --bind "$2" /tmp/ray && shift 2 && exec "$@"'
        within = ["ip", "netns", "exec", self.name, "unshare", "--uts", "--mount"]
        return [*within, "sh", "-c", begin, "sh", self.name, str(self.folder), *words]

    def start_ray(self, *options: str) -> None:
        here = ["--node-ip-address", self.address, "--object-store-memory", str(100 << 20)]
        _run(self.command(_RAY, "start", *options, *here), self.environment)

    def pids(self) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]

    def lose(self) -> None:
        """Ends all of its processes and its network, for good."""
        _run(["ip", "-n", self.name, "link", "set", "eth0", "down"])
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RunFailed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"[-2000:])


@contextlib.contextmanager
def three_machines(folder: Path) -> Iterator[list[Machine]]:
    """One without CPUs for the learner, and two with three CPUs each, which form a cluster."""
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    machines = [Machine(number, folder / f"machine{number}", environment) for number in range(3)]
    try:
        _run(["ip", "link", "add", "minding", "type", "bridge"])
        _run(["ip", "addr", "add", f"{_BRIDGE}/24", "dev", "minding"])
        _run(["ip", "link", "set", "minding", "up"])
        # Where Ray works.
        Path("/tmp/ray").mkdir(exist_ok=True)
        for each in machines:
            shutil.rmtree(each.folder, ignore_errors=True)
            each.folder.mkdir(parents=True)
            there = ["ip", "-n", each.name]
            _run(["ip", "netns", "add", each.name])
            cable = ["type", "veth", "peer", "name", "eth0", "netns", each.name]
            _run(["ip", "link", "add", each.name, *cable])
            _run(["ip", "link", "set", each.name, "master", "minding", "up"])
            _run([*there, "addr", "add", f"{each.address}/24", "dev", "eth0"])
            for device in ("lo", "eth0"):
                _run([*there, "link", "set", device, "up"])
            _run([*there, "route", "add", "default", "via", _BRIDGE])
        machines[0].start_ray("--head", f"--port={_PORT}", "--num-cpus=0", "--include-dashboard=false")
        for each in machines[1:]:
            each.start_ray(f"--address={machines[0].address}:{_PORT}", "--num-cpus=3")
        yield machines
    finally:
        for each in machines:
            # A namespace stays as long as its processes, some of which may only be starting.
            while pids := each.pids():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.1)
            for command in (["link", "del", each.name], ["netns", "del", each.name]):
                subprocess.run(["ip", *command], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", "minding"], capture_output=True, check=False)


def joined(machines: list[Machine]) -> tuple[str, ...]:
    """The settings by which a run joins the cluster of these machines."""
    return ("lanes.transport=ray", f"lanes.address={machines[0].address}:{_PORT}")


def faults(runs: Path, cases: Sequence[str], repeats: int) -> list[Record]:
    """A record for each of some `CASES`."""
    found = []
    for case in cases:
        where, _, name = case.partition(": ")
        rows = []
        for _ in range(repeats):
            with contextlib.ExitStack() as held:
                machines = held.enter_context(three_machines(runs / NAME)) if where == "joined" else []
                rows.append(_lose(name, runs / NAME, machines))
        found.append({"cluster": where, "fault": name, "runs": rows})
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def _lose(name: str, folder: Path, machines: list[Machine]) -> Record:
    """What a run does that loses a process of Ray: exit code, seconds, lines, and what is saved."""
    program, number, interrupted = FAULTS[name]
    out = folder / "faults"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    settings = ["lanes.async_mode=true", "lanes.collectors=2", "lanes.shards=2", "run.max_env_step=100000000"]
    settings += [f"run.out_dir={out}", "run.ckpt_freq=32", *(joined(machines) if machines else ["lanes.transport=ray"])]
    command = [sys.executable, "-m", "minding", "train", "cartpole_ppo", "--no-progress", *settings]
    if machines:
        command = machines[0].command(*command)
    environment = machines[0].environment if machines else None
    # Processes of Ray inherit the output: a pipe would stay open.
    with (
        open(out / "said", "w", encoding="utf-8") as said,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT) as run,
    ):
        try:
            _until(lambda: _saved(out) >= 3, run, out / "said")
            here = machines[0].pids() if machines else [p.pid for p in psutil.Process(run.pid).children(recursive=True)]
            (victim,) = [pid for pid in here if program in _command_line(pid)]
            os.kill(victim, number)
            begun = time.monotonic()
            if interrupted:
                time.sleep(1.0)
                begun = time.monotonic()
                run.send_signal(signal.SIGINT)
            code = run.wait(_WAIT)
        finally:
            run.kill()
    seconds = time.monotonic() - begun
    if number == signal.SIGSTOP:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    status = json.loads(next(out.glob("*/status.json")).read_text(encoding="utf-8"))
    lines = (out / "said").read_text(encoding="utf-8").splitlines()
    messages = [line for line in lines if line.startswith("minding: ")]
    last = status["state"] != "running" and _saved(out) == status["iteration"]
    return {"code": code, "seconds": round(seconds, 1), "messages": messages, "last_state_saved": last}


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def _saved(out: Path) -> int:
    """The iteration of the newest checkpoint of the run in a folder; 0 without one."""
    for folder in out.glob("*/ckpt"):
        # It may be removed meanwhile, when a newer one is saved.
        with contextlib.suppress(CheckpointError, OSError):
            newest = newest_checkpoint(folder)
            if newest is not None:
                return int(read_manifest(newest)["total_step"])
    return 0


def _until(reached: Any, run: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + _WAIT
    while not reached():
        if run.poll() is not None or time.monotonic() > deadline:
            raise RunFailed(f"the run did not get far enough\n{said.read_text(encoding='utf-8')[-2000:]}")
        time.sleep(0.02)


def lost(runs: Path) -> list[Record]:
    """A record for each order of rollouts: a run that loses one of two machines with workers halfway."""
    found = []
    for order, (preset, gradient_steps, changes) in _LOST.items():
        lanes = ("lanes.async_mode=true", "lanes.collectors=4", f"lanes.order={order}", *changes)
        whole = KillJob(NAME, preset, 0, STEPS, lanes, kills=1, gradient_steps=gradient_steps)
        folder = runs / NAME / order
        shutil.rmtree(folder, ignore_errors=True)
        train(whole, folder / "whole")
        expected = RunDir.open(folder / "whole" / preset)
        with three_machines(runs / NAME) as machines:
            job = dataclasses.replace(whole, changes=(*lanes, *joined(machines)))
            run_dir = _halfway(job, folder / "lost", machines, gradient_steps // 2)
        ends = [_end(each) for each in (expected, run_dir)]
        row: Record = {"order": order, "preset": preset, "env_step": STEPS, "whole": ends[0], "lost": ends[1]}
        if order == "exact":
            one, other = outcome(expected), outcome(run_dir)
            row["entries"] = len(one)
            row["different"] = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
        found.append(row)
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def _halfway(job: KillJob, folder: Path, machines: list[Machine], gradient_steps: int) -> RunDir:
    """Trains on the cluster, and loses the last machine after about so many gradient steps."""
    folder.mkdir(parents=True)
    command = machines[0].command(*command_of(job, folder))
    said = folder / "said"
    with (
        open(said, "w", encoding="utf-8") as file,
        subprocess.Popen(command, cwd=ROOT, env=machines[0].environment, stdout=file, stderr=subprocess.STDOUT) as run,
    ):
        try:
            saved = folder / job.preset / "ckpt"
            _until(lambda: any((step_of(each) or 0) >= gradient_steps for each in saved.glob("iter_*")), run, said)
            machines[-1].lose()
            code = run.wait(_WAIT)
        finally:
            run.kill()
    if code:
        raise RunFailed(f"exit code {code} after the loss of a machine\n{said.read_text(encoding='utf-8')[-2000:]}")
    return RunDir.open(folder / job.preset)


def _end(run_dir: RunDir) -> Record:
    """Counters and return at the end of a run, and how many workers were replaced."""
    summary = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    status = json.loads((run_dir.path / "status.json").read_text(encoding="utf-8"))
    ends = {name: summary[name] for name in ("env_step", "train_iter", "eval_return")}
    return {**ends, "replaced": sum(worker["restarts"] for worker in status["workers"])}


def _case(row: Record) -> str:
    return f"{row['cluster']}: {row['fault']}"


def main(argv: list[str] | None = None) -> int:
    """Returns 0, or 1 if a run did not end as it should."""
    parser = argparse.ArgumentParser(prog="python -m proofs.three_machines", description=__doc__)
    parts = ("faults", "lost")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{' or '.join(parts)} (both): what is measured again")
    parser.add_argument("--only", action="append", choices=CASES, metavar="FAULT", help=f"{', '.join(CASES)} (all)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each fault (3)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    args = parser.parse_args(argv)
    if unknown := set(args.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; expected {', '.join(parts)}")
    results = Results(args.docs)
    record = results.single(NAME) or {}
    runs = args.runs.resolve()
    for part in args.parts or parts:
        if part == "faults":
            cases = args.only or CASES
            kept = [row for row in record.get(part, {}).get("rows", ()) if _case(row) not in cases]
            rows = sorted([*kept, *faults(runs, cases, args.repeats)], key=lambda row: CASES.index(_case(row)))
        else:
            rows = lost(runs)
        record[part] = {"rows": rows, "load": round(os.getloadavg()[0], 1), "versions": commit()}
    path = args.docs / "results" / f"{NAME}.json"
    path.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n", encoding="utf-8")
    pages.update(results)
    ended = all(
        run["code"] and run["messages"] for row in record.get("faults", {}).get("rows", ()) for run in row["runs"]
    )
    return 0 if ended and not any(row.get("different") for row in record.get("lost", {}).get("rows", ())) else 1


if __name__ == "__main__":
    sys.exit(main())
