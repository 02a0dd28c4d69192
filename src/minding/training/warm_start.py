"""Starts a run from the learned state of another run: `run.begin_from`."""

from pathlib import Path

from minding.configs.datasets import data_folder, is_same_data
from minding.engine.checkpoint import Checkpoint, read_manifest, resumable_checkpoints, use_newest
from minding.engine.config.config import Config
from minding.engine.config.identity import POLICY, RUN, check_checkpoint, check_identity, identity
from minding.engine.config.options import setting_at
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Policy
from minding.training.saved_agent import check_saved, is_saved, trained_steps, warm_start

_LEARNED = {path: what for path, what in RUN.items() if path in POLICY or path == "policy.other.reward"}
"""Settings that both runs must have in common: those of the policy, and of the scale of its values."""
for _path in ("env.env_id", "env.wrappers"):
    # A run without an environment may have learned from data of the environment in which this run collects.
    del _LEARNED[_path]
_ACTS = {path: what for path, what in _LEARNED.items() if path in POLICY}
"""Settings that a run must share with a saved policy, which only acts."""


def check_begin(cfg: Config) -> None:
    """Refuses a `run.begin_from` that this run cannot start from: without a checkpoint, of another algorithm, network
    or space, or which has learned from episodes that this run holds out; reads manifests only."""
    if cfg.run.begin_from is None:
        return
    run = _run(cfg)
    _check_held_out(cfg, run)
    if is_saved(run.path):
        check_saved(run.path)
        check_identity(identity(run.read_config()), cfg, f"the saved policy {run.path}", _ACTS)
        return
    found = resumable_checkpoints(run.checkpoints)
    if not found:
        raise ConfigError(f"run.begin_from={cfg.run.begin_from!r}: there is no checkpoint in {run.checkpoints}")
    saved = read_manifest(found[-1]).get("identity")
    if isinstance(saved, dict):
        check_identity(saved, cfg, f"checkpoint {found[-1]}", _LEARNED)


def take_over(policy: Policy, cfg: Config) -> None:
    """Copies the learned state of the run `run.begin_from` into a new policy: weights, targets, the optimizer's state,
    moments of observations, the scale of rewards, counts of gradient steps. Random streams and the memory of recurrent
    policies stay those of the new run. For a folder that `Agent.save` wrote see `sharing.warm_start`."""
    folder = _run(cfg).path
    if is_saved(folder):
        check_saved(folder)
        warm_start(policy, folder)
        lacks = "" if trained_steps(folder) is not None else "; critics, optimizer and counts are new: it lacks them"
        console_logger().info("starts from the saved policy %s%s", folder, lacks)
        return

    def use(found: Checkpoint) -> None:
        check_checkpoint(found, cfg, _LEARNED)
        own = policy.state_dict()
        policy.load_state_dict({**found.state["policy"], "acting": own["acting"], "rng": own["rng"]})

    taken = use_newest(_run(cfg).checkpoints, use)
    console_logger().info("starts from the learned state of %s", taken.path)


def _check_held_out(cfg: Config, run: RunDir) -> None:
    """Refuses held-out episodes from which that run, or a run that it began from, has learned."""
    share = cfg.policy.other.holdout
    seen: set[Path] = set()
    while share and run.path.resolve() not in seen:
        seen.add(run.path.resolve())
        there = run.read_config()
        other = setting_at(there, "policy.other", {})
        held = float(other.get("holdout") or 0.0)
        # The episodes of a smaller share are a subset of those of a larger share.
        apart = held >= share and there.get("seed") == cfg.seed
        if other.get("data") and not apart and is_same_data(str(other["data"]), data_folder(cfg)):
            fix = f"give seed={there.get('seed')} and policy.other.holdout of at most {held:g}, or " if held else ""
            raise ConfigError(
                f"policy.other.holdout={share:g} with seed={cfg.seed}: the run {str(run.path)!r} has learned from "
                f"episodes of the same data that would be held out here, which would judge it too well: {fix}leave "
                "policy.other.holdout out"
            )
        earlier = setting_at(there, "run.begin_from")
        if not earlier or not (Path(str(earlier)) / run.config.name).is_file():
            return
        run = RunDir.open(str(earlier), trust=True)


def _run(cfg: Config) -> RunDir:
    # The code that the configuration names is not run: only the checkpoint is read.
    return RunDir.open(str(cfg.run.begin_from), trust=True)
