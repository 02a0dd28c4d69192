"""Loads the trained policy of a run folder, or of a folder that `Agent.save` wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from minding.configs import compile_saved
from minding.engine.checkpoint import Checkpoint, use_checkpoint, use_newest
from minding.engine.config.config import Config
from minding.engine.config.identity import POLICY, check_checkpoint
from minding.engine.error_origin import in_code_of
from minding.engine.run.pool import ModelPool, Version
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Policy
from minding.training.assembly import make_policy, sizes_named
from minding.training.saved_agent import check_saved, is_saved, read_weights


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
