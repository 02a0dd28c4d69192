"""Loads the trained policy of a run folder, or of a folder that `Agent.save` wrote, and begins a run with the weights
of another (`run.begin_from`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from minding.configs import compile_saved
from minding.configs.datasets import data_folder, is_same_data
from minding.engine.checkpoint import Checkpoint, read_manifest, resumable_checkpoints, use_checkpoint, use_newest
from minding.engine.config.config import Config
from minding.engine.config.identity import POLICY, RUN, check_checkpoint, check_identity, identity
from minding.engine.config.options import setting_at
from minding.engine.console import console_logger
from minding.engine.error_origin import in_code_of
from minding.engine.errors import ConfigError
from minding.engine.run.pool import ModelPool, Version
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Policy
from minding.training.assembly import make_policy, sizes_named
from minding.training.saved_agent import check_saved, is_saved, read_weights, trained_steps, warm_start


class Trained(NamedTuple):
    """A policy with its configuration, and the checkpoint, version file or saved folder that it was loaded from."""

    cfg: Config
    policy: Policy
    ckpt: Path


def load_policy(run: RunDir, ckpt: str | Path | Version | None = None, modes: Sequence[str] = ("eval",)) -> Trained:
    """The trained policy of a run.

    Args:
      run: a run folder, or the folder of a saved policy.
      ckpt: a checkpoint folder, or a version of the run's model pool; the newest checkpoint by default, or the saved
        policy itself.
      modes: the modes of the policy to build.

    Raises:
      CheckpointError: if there is no undamaged checkpoint, or it does not belong to the run's algorithm, network,
        environment and spaces; this is checked before the policy is built.
      ConfigError: if the run's configuration is damaged.
      TrustError: if the configuration names code that is not the user's own.
    """
    saved = ckpt is None and is_saved(run.path)
    if saved:
        check_saved(run.path)
    cfg = compile_saved(run)
    with sizes_named(cfg):
        return _load(cfg, run, ckpt, modes, saved)


def _load(cfg: Config, run: RunDir, ckpt: str | Path | Version | None, modes: Sequence[str], saved: bool) -> Trained:
    """The policy of a run with this configuration; `saved`: of a folder that `Agent.save` wrote."""
    if isinstance(ckpt, Version):
        arrays = ModelPool(run.models).read(ckpt)
        policy = make_policy(cfg, modes=modes)
        policy.load_acting_arrays(arrays, ckpt.network)
        return Trained(cfg, policy, ckpt.path)
    if saved:
        arrays, network = read_weights(run.path)
        policy = make_policy(cfg, modes=modes)
        policy.load_acting_arrays(arrays, network)
        return Trained(cfg, policy, run.path)
    built: list[Policy] = []

    def use(found: Checkpoint) -> None:
        with found.reading():
            check_checkpoint(found, cfg, POLICY)
        if not built:
            built.append(make_policy(cfg, modes=modes))
        load_weights(built[0], found)

    found = use_newest(run.checkpoints, use) if ckpt is None else use_checkpoint(Path(ckpt), use)
    return Trained(cfg, built[0], found.path)


def load_weights(policy: Policy, found: Checkpoint) -> None:
    """Loads a policy's state from a checkpoint."""
    with found.reading(), in_code_of(policy, "in load_state_dict() of the policy"):
        policy.load_state_dict(found.state["policy"])


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
    policies stay those of the new run. For a folder that `Agent.save` wrote see `saved_agent.warm_start`."""
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
