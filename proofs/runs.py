"""What is proved, how one proof is run, and where its result is written down."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import cpu_model
from minding.configs import PRESETS, compile_run, load_named
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.engine.config.config import Config
from minding.engine.data.dataset import load_dataset
from minding.engine.run.curves import EVAL_RETURN, series
from minding.engine.run.metrics import read_metrics
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array
from proofs.recordings import Source, folder_name

ROOT = Path(__file__).resolve().parent.parent
Record = dict[str, Any]
"""One line of a result file: plain JSON values."""


class RunFailed(RuntimeError):
    """A run ended with an error; the message holds the end of what it printed."""


@dataclasses.dataclass(frozen=True)
class Learning:
    """A preset, the mean return over 100 evaluation episodes it has to reach, and the steps it has for that.

    Attributes:
      env_step: environment steps; 0 for a preset that learns from recorded data, as long as its settings say.
      recorded: what its data are made of, one part after the other.
    """

    preset: str
    env_step: int
    target: float | None
    seeds: int = 5
    recorded: tuple[Source, ...] = ()


def _learning(preset: str) -> Learning | None:
    """What the preset's module says is to be proved."""
    module = importlib.import_module(f"minding.configs.{preset}")
    proof = getattr(module, "proof", {})
    if proof is None:
        return None
    run, recorded = module.main_config.run, tuple(Source(**each) for each in proof.get("recorded", ()))
    env_step = 0 if recorded else run.max_env_step
    return Learning(preset, **{"env_step": env_step, "target": run.get("target"), **proof, "recorded": recorded})


LEARNING = {preset: proof for preset in PRESETS if (proof := _learning(preset)) is not None}
COLLECTING = {preset: proof for preset, proof in LEARNING.items() if not proof.recorded}
"""Those that play while they learn: they run in lanes, too, and for a number of environment steps."""
DETERMINISM = 10_000
"""Environment steps after which two runs of a preset must have the same parameters, bit by bit."""
ASYNC = "async_learning"
"""The learning proofs again, with lanes."""
STUDY = "studies"
"""Variants of presets, see `proofs.studies`."""
OFFLINE = "offline"
"""BC on all recorded data, and presets on those of others, see `proofs.data_sets`."""
COMMITS = "commits.txt"
"""In the folder of a job: the commit of each call that ran or continued it."""
_OFF_BY_DEFAULT = ("info_keys", "episodic_life")
"""Settings of environments that are part of what is learned only where they are set."""
MEMORY = 1_000_000
"""Environment steps of the run whose memory is watched."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run, or the pair of runs of a determinism proof.

    Attributes:
      changes: what it overrides beyond seed, steps and lanes.
      program: the module whose command line trains it.
      study, variant: names of what it belongs to; empty unless its kind is `STUDY`.
      recorded: what its data are made of; if empty, what those of its preset are.
    """

    kind: str
    preset: str
    seed: int
    env_step: int
    changes: tuple[str, ...] = ()
    program: str = "minding"
    study: str = ""
    variant: str = ""
    recorded: tuple[Source, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """What its data are made of."""
        return self.recorded or (LEARNING[self.preset].recorded if self.preset in LEARNING else ())

    @property
    def env_id(self) -> str:
        """Its environment."""
        return str(compiled(self.preset, self.overrides).env.env_id)

    @property
    def overrides(self) -> tuple[str, ...]:
        lanes = ("lanes.async_mode=true",) if self.kind == ASYNC else ()
        steps = (f"run.max_env_step={self.env_step}",) if self.env_step else ()
        return (f"seed={self.seed}", *steps, *lanes, *self.changes)

    @property
    def config_hash(self) -> str:
        settings = config_hash(self.preset, self.overrides)
        own = [] if self.program == "minding" else [self.program]
        own += [folder_name(self.recorded, self.env_id)] if self.recorded else []
        return hashlib.sha256(" ".join([*own, settings]).encode()).hexdigest()[:12] if own else settings

    @property
    def command(self) -> str:
        """The command line that runs it."""
        program = "minding" if self.program == "minding" else f"python -m {self.program}"
        return " ".join([program, "train", self.preset, *self.overrides])

    @property
    def folder(self) -> Path:
        """Where its runs are, below that of all proofs."""
        above = {ASYNC: (ASYNC,), STUDY: (STUDY, self.study, self.variant), OFFLINE: (OFFLINE, *self._data)}
        return Path(*above.get(self.kind, ()), self.preset, f"seed_{self.seed}")

    @property
    def _data(self) -> list[str]:
        return [folder_name(self.recorded, self.env_id)] if self.recorded else []

    def __str__(self) -> str:
        name = f"{self.study}, {self.variant}," if self.study else " on ".join([self.preset, *self._data])
        return f"{self.kind} {name} seed {self.seed}"


@functools.cache
def compiled(preset: str, overrides: tuple[str, ...]) -> Config:
    """The settings of a preset, or of an algorithm with its defaults."""
    return compile_run(load_named(preset), overrides)


@functools.cache
def config_hash(preset: str, overrides: tuple[str, ...]) -> str:
    """Twelve hex digits of the settings that decide what is learned: results of other settings are not mixed up."""
    cfg = compiled(preset, overrides)
    decisive = {key: cfg[key] for key in ("seed", "chain", "env", "policy")}
    decisive["run"] = {"max_env_step": cfg.run.max_env_step}
    if cfg.policy.type == "gail":
        # The name of its chain when results of it were measured.
        decisive["chain"] = "gail" if cfg.chain == "recorded_reward" else cfg.chain
    if cfg.run.max_train_iter is not None:
        decisive["run"]["max_train_iter"] = cfg.run.max_train_iter
    if cfg.lanes.async_mode:
        decisive["lanes"] = {key: cfg.lanes[key] for key in ("collectors", "max_staleness")}
    # How a run is saved and what it does with a batch of NaN is not part of what an undisturbed run learns.
    policy = {**cfg.policy, **{part: dict(cfg.policy[part]) for part in ("learn", "eval", "other")}}
    policy["learn"].pop("on_nan")
    policy["other"].pop("save_buffer", None)
    policy["other"].pop("data_memory", None)
    if policy["eval"].get("deterministic"):
        policy["eval"].pop("deterministic")
    memory = policy["model"].get("memory", "gtrxl")
    unused = ["memory_length", "memory_layers", "memory_heads"] if memory != "gtrxl" else []
    unused += ["memory", "memory_dim"] if memory == "none" else []
    policy["model"] = {key: x for key, x in policy["model"].items() if key not in unused}
    if policy["other"].get("replay") == "uniform":
        policy["other"] = {key: x for key, x in policy["other"].items() if key not in ("replay", "priority")}
    for name in ("rnd", "icm"):
        if not policy["other"].get(name, {}).get("weight"):
            policy["other"] = {key: x for key, x in policy["other"].items() if key != name}
    if cfg.chain != "hindsight" or policy["other"].get("hindsight") == {"k": 4}:
        policy["other"] = {key: x for key, x in policy["other"].items() if key != "hindsight"}
    if policy["learn"].get("anneal_kind") == "linear":
        del policy["learn"]["anneal_kind"], policy["learn"]["anneal_points"]
    # The first three could choose their optimizer before the others could.
    if policy["learn"].get("optimizer") == "adam" and policy["type"] not in ("a2c", "ac", "pg"):
        del policy["learn"]["optimizer"]
    if policy["model"].get("decoder") == "linear":
        policy["model"] = {key: x for key, x in policy["model"].items() if key != "decoder"}
    if policy["learn"].get("td_lambda") == 0.0:
        del policy["learn"]["td_lambda"]
    if policy["learn"].get("updates_per_step") is None:
        policy["learn"].pop("updates_per_step", None)
    if policy["other"].get("eps", {}).get("points") == []:
        eps = {key: x for key, x in policy["other"]["eps"].items() if key != "points"}
        policy["other"] = {**policy["other"], "eps": eps}
    if policy["collect"].get("random_share") == 0.0:
        policy["collect"] = {key: x for key, x in policy["collect"].items() if key != "random_share"}
    # Nor are limits that no preset run reaches: on endless evaluations, on schedules separate from the run.
    policy["eval"].pop("max_episode_steps")
    if policy["learn"]["anneal_steps"] is None:
        del policy["learn"]["anneal_steps"]
    decisive["policy"] = policy
    env = {key: value for key, value in cfg.env.items() if value or key not in _OFF_BY_DEFAULT}
    # The description of an observation says whether it has the agent's number.
    env.pop("agent_ids", None)
    if "agents" in env["spec"]:
        # What each agent sees and does follows from the environment, whose name counts.
        agents = {key: value for key, value in env["spec"]["agents"].items() if key != "spaces"}
        env["spec"] = {**env["spec"], "agents": agents}
    decisive["env"] = env
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


class Results:
    """What was measured, in ``<docs>/results``; of the lines in ``<kind>.jsonl`` the last for a job counts."""

    def __init__(self, docs: Path) -> None:
        self.docs = docs

    def append(self, kind: str, record: Record) -> None:
        path = self._path(kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def of(self, kind: str, preset: str) -> list[Record]:
        """The newest record of each seed of a preset, by seed, all of the settings of the newest one."""
        records = [record for record in self.lines(kind) if record["preset"] == preset]
        newest = {record["seed"]: record for record in records if _same_settings(record, records[-1])}
        return [newest[seed] for seed in sorted(newest)]

    def of_study(self, name: str) -> dict[str, list[Record]]:
        """By variant, the newest record of each seed, of the settings of the newest one."""
        records = [record for record in self.lines(STUDY) if record["study"] == name]
        last = {record["variant"]: record for record in records}
        newest = {(r["variant"], r["seed"]): r for r in records if _same_settings(r, last[r["variant"]])}
        return {variant: [newest[pair] for pair in sorted(newest) if pair[0] == variant] for variant in last}

    def on_data(self, name: str) -> dict[str, list[Record]]:
        """By preset, the newest record of each seed on these data, of the settings of the newest one; see `OFFLINE`."""
        records = [record for record in self.lines(OFFLINE) if record["data"]["name"] == name]
        last = {record["preset"]: record for record in records}
        newest = {(r["preset"], r["seed"]): r for r in records if _same_settings(r, last[r["preset"]])}
        return {preset: [newest[pair] for pair in sorted(newest) if pair[0] == preset] for preset in last}

    def presets(self, kind: str) -> list[str]:
        """Names of the presets that have records."""
        return sorted({record["preset"] for record in self.lines(kind)})

    def single(self, kind: str) -> Record | None:
        """A result that is one file, ``<kind>.json``; None if it was not measured yet."""
        path = self.docs / "results" / f"{kind}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def has(self, job: Job) -> bool:
        """Whether a job has a row that counts: of its command and data, with the settings of the newest seed of them.

        Not whether these are the settings of today: one that is added or renamed changes the fingerprint of rows that
        it does not concern. A row says its commit, the table which settings differ (`changed_since`), and ``--again``
        runs what is to be run again.
        """
        data = folder_name(job.recorded, job.env_id) if job.recorded else None
        rows = [
            record
            for record in self.lines(job.kind)
            if record["command"] == dataclasses.replace(job, seed=record["seed"]).command
            and (data is None or record["data"]["name"] == data)
        ]
        return any(record["seed"] == job.seed and _same_settings(record, rows[-1]) for record in rows)

    def _path(self, kind: str) -> Path:
        return self.docs / "results" / f"{kind}.jsonl"

    def lines(self, kind: str) -> list[Record]:
        """All records of a kind, in the order in which they were made; not to be changed."""
        path = self._path(kind)
        if not path.is_file():
            return []
        found = path.stat()
        return _records(path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=16)
def _records(path: Path, changed: int, size: int) -> list[Record]:
    """Of a file in one of its states: a table for each preset reads the same one."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _same_settings(record: Record, other: Record) -> bool:
    return bool(record["settings_hash"] == other["settings_hash"])


def changed_since(record: Record) -> bool:
    """Whether a preset of today, with the changes of a record's command, has other settings than the record's."""
    overrides = [word for word in record["command"].split(" train ")[1].split()[1:] if not word.startswith("seed=")]
    return config_hash(record["preset"], ("seed=0", *overrides)) != record["settings_hash"]


def run_learning(job: Job, runs: Path, resume: bool = False) -> Record:
    """Trains a preset and takes its final evaluation, the best of the evaluations on the way, and its curve.

    Args:
      job: what is trained.
      runs: the folder of all run folders.
      resume: continue where an interrupted run of this job stopped, instead of starting again.
    """
    data = _recorded(job, runs)
    folder = runs / job.folder
    run_dir = train(job, folder, [] if data is None else [f"policy.other.data={data}"], resume=resume)
    summary = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    steps, returns = series(read_metrics(run_dir.metrics), EVAL_RETURN)
    return {
        **head_of(job, folder),
        **({} if data is None else {"data": data_figures(data)}),
        "eval_mean": summary["eval_return"],
        "eval_std": summary["eval_std"],
        "eval_episodes": summary["n_eval_episodes"],
        **({"best": _best(job, summary["unit"], steps, returns)} if len(returns) else {}),
        **({"eval_info": summary["eval_info"]} if summary["eval_info"] else {}),
        "env_step": summary["env_step"],
        "train_iter": summary["train_iter"],
        "seconds": round(summary["wall_time"], 1),
        "curve": {summary["unit"]: steps.tolist(), "eval_return": returns.round(2).tolist()},
    }


def _best(job: Job, unit: str, steps: Array, returns: Array) -> Record:
    """The best of the evaluations on the way: its step, its mean return, and over how many episodes that is."""
    best = int(returns.argmax())
    episodes = compiled(job.preset, job.overrides).policy.eval.n_episode
    return {unit: int(steps[best]), "eval_mean": round(float(returns[best]), 2), "eval_episodes": episodes}


def run_determinism(job: Job, runs: Path) -> Record:
    """Trains a preset twice in fresh processes and compares SHA-256 of all parameters."""
    folders = [runs / "determinism" / f"{job.preset}_{number}" for number in (1, 2)]
    digests = [parameter_digest(train(job, folder)) for folder in folders]
    return {**head_of(job), "env_step": job.env_step, "sha256": digests, "equal": digests[0] == digests[1]}


def parameter_digest(run_dir: RunDir) -> str:
    """SHA-256 over names and bytes of all parameters (networks, targets, optimizers) of the newest checkpoint."""
    state, _ = load_checkpoint(newest_checkpoint(run_dir.checkpoints))
    digest = hashlib.sha256()
    for name, value in sorted(state["policy"]["params"].items()):
        digest.update(name.encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def run_memory(job: Job, runs: Path) -> Record:
    """Watches resident memory over a long run, in which a second compilation is an error."""
    out = run_module("benchmarks.memory", job.preset, str(job.env_step), str(job.seed))
    return {**head_of(job), "env_step": job.env_step, **json.loads(out.splitlines()[-1])}


def _recorded(job: Job, runs: Path) -> Path | None:
    """The folder of the data that a job learns from, see `make_data`."""
    return make_data(job.sources, job.env_id, runs) if job.sources else None


def make_data(sources: Sequence[Source], env_id: str, runs: Path) -> Path:
    """Makes data of their sources, unless that is done; returns the folder."""
    folder = runs / "recorded"
    parts = [_part(source, env_id, folder) for source in sources]
    data = folder / folder_name(sources, env_id)
    if not data.exists():
        run_module("minding", "data", "convert", *map(str, parts), "--out", str(data))
    return data


def data_figures(folder: Path) -> Record:
    """What a table says of recorded data: returns are those of whole episodes."""
    data = load_dataset(folder, mapped=True)
    returns = data.returns()
    return {
        "name": folder.name,
        "steps": len(data),
        "episodes": len(data.end),
        "return_mean": round(float(returns.mean()), 2),
        "return_std": round(float(returns.std()), 2),
    }


def _part(source: Source, env_id: str, folder: Path) -> Path:
    """Trains the policy of a source, and records it, unless that is done; returns the folder of the data."""
    data = folder / folder_name([source], env_id)
    if not data.exists():
        run_dir = None
        if source.preset and source.steps:
            job = Job("learning", source.preset, 0, source.env_step or LEARNING[source.preset].env_step)
            run_dir = train(job, folder / f"{source.preset}_{job.env_step}")
        unfinished = data.with_name(f"{data.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        run_module(*source.command(run_dir and run_dir.path, env_id, unfinished))
        unfinished.rename(data)
    return data


def train(job: Job, folder: Path, more: Sequence[str] = (), resume: bool = False) -> RunDir:
    """Runs ``minding train`` into a separate folder; what an interrupted run left there is removed, or resumed."""
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / COMMITS, "a", encoding="utf-8") as file:
        file.write(commit().get("commit", "") + "\n")
    overrides = [*job.overrides, *more, f"run.out_dir={folder}", f"exp_name={job.preset}"]
    how = ["--resume", "--no-progress"] if resume else ["--no-progress"]
    run_module(job.program, "train", job.preset, *overrides, *how)
    return last_run(folder)


def last_run(folder: Path) -> RunDir:
    """The run that finished: one that was interrupted before its first checkpoint is started again in another folder.

    Raises:
      RunFailed: no run in `folder` finished.
    """
    finished = [path for path in folder.glob("*/summary.json") if path.is_file()]
    if not finished:
        raise RunFailed(f"no run in {folder} wrote its summary")
    return RunDir(max(finished, key=lambda path: path.stat().st_mtime).parent)


def run_module(*words: str) -> str:
    """What ``python -m`` with these words prints; an exception meanwhile, such as Ctrl-C, sends it SIGTERM and waits.

    Raises:
      RunFailed: its exit code is not 0.
    """
    # In a session of its own, Ctrl-C in a terminal does not reach it a second time, which would end it at once. It is
    # only in the main thread that Ctrl-C raises an exception.
    alone = threading.current_thread() is threading.main_thread()
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=alone
    ) as process:
        try:
            if alone:
                share_as_little(process.pid)
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    if process.returncode:
        raise RunFailed(f"{' '.join(command[1:])}: exit code {process.returncode}\n{(out + err)[-2000:]}")
    return out


def share_as_little(pid: int) -> None:
    """Gives the session of process `pid` the priority of this process: Linux shares processors among sessions first, so
    that a process's own priority counts only within its session."""
    # Other systems have no such file, and a process may have ended.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(os.nice(0)))


def head_of(job: Job, folder: Path | None = None) -> Record:
    """What every record begins with.

    Args:
      job: what was run.
      folder: where `train` ran it. The commit is then the one that it began with; if it was continued with others, all
        of them.
    """
    packages = ("minding", "mindspore", "numpy", "gymnasium")
    began = {} if folder is None else _commits(folder)
    return {
        "preset": job.preset,
        **({"study": job.study, "variant": job.variant} if job.study else {}),
        "seed": job.seed,
        "config_hash": job.config_hash,
        # That of seed 0: the same for all seeds of one experiment.
        "settings_hash": dataclasses.replace(job, seed=0).config_hash,
        "command": job.command,
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in packages}, **commit(), **began},
        "processor": cpu_model(),
    }


def commit() -> dict[str, str]:
    """The commit that is measured, ``{"commit": "0123abcd"}``, with ``+`` if code differs; empty outside git."""
    code = ("engine", "middleware", "policies", "envs", "configs", "src", "benchmarks", "proofs")
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *code], capture_output=True).returncode
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": head.stdout.strip() + ("+" if changed else "")}


def _commits(folder: Path) -> dict[str, str]:
    """The commits that ran the job of a folder, each once, as `commit` gives one."""
    lines = (folder / COMMITS).read_text(encoding="utf-8").split()
    return {"commit": ", ".join(dict.fromkeys(lines))} if lines else {}


def _version(package: str) -> str:
    if package == "minding":
        from minding import __version__

        return __version__
    return importlib.metadata.version(package)
