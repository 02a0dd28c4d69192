"""A run that begins with what another one has learned: `run.begin_from`."""

from __future__ import annotations

from minding.engine.checkpoint import Checkpoint, read_manifest, resumable_checkpoints, use_newest
from minding.engine.config.config import Config
from minding.engine.config.identity import POLICY, RUN, check_checkpoint, check_identity
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Policy

_LEARNED = {path: what for path, what in RUN.items() if path in POLICY or path == "policy.other.reward"}
"""What both runs have to have in common: the policy, and the scale of its values."""
for _path in ("env.env_id", "env.wrappers"):
    # A run without an environment may have learned from data of the one that this run collects in.
    del _LEARNED[_path]


def check_begin(cfg: Config) -> None:
    """Refuses `run.begin_from` where there is nothing that this run could begin with, by manifests alone.

    Raises:
      ConfigError: it is no run folder, or one without a checkpoint.
      CheckpointError: what that run learned belongs to another algorithm, network, observation or action.
    """
    if cfg.run.begin_from is None:
        return
    run = _run(cfg)
    found = resumable_checkpoints(run.checkpoints)
    if not found:
        raise ConfigError(f"run.begin_from={cfg.run.begin_from!r}: there is no checkpoint in {run.checkpoints}")
    saved = read_manifest(found[-1]).get("identity")
    if isinstance(saved, dict):
        check_identity(saved, cfg, f"checkpoint {found[-1]}", _LEARNED)


def take_over(policy: Policy, cfg: Config) -> None:
    """Writes what the run `run.begin_from` has learned into a new policy: weights, targets, the optimizer's state,
    moments of observations, the scale of rewards, counts of gradient steps. Random streams, and what acting remembers,
    stay those of the new run.

    Raises:
      ConfigError, CheckpointError: as `check_begin`, or a checkpoint is damaged.
    """

    def use(found: Checkpoint) -> None:
        check_checkpoint(found, cfg, _LEARNED)
        own = policy.state_dict()
        policy.load_state_dict({**found.state["policy"], "acting": own["acting"], "rng": own["rng"]})

    taken = use_newest(_run(cfg).checkpoints, use)
    console_logger().info("begins with what %s has learned", taken.path)


def _run(cfg: Config) -> RunDir:
    # No code that its configuration names is run: only the checkpoint is read.
    return RunDir.open(str(cfg.run.begin_from), trust=True)
