"""Exports the policy of a run to a file, and opens such a file to act in place of the policy."""

import dataclasses
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from minding import __version__
from minding.engine.checkpoint.store import first_line
from minding.engine.config.config import Config
from minding.engine.data import obs_trees
from minding.engine.data.agent_axis import num_agents
from minding.engine.errors import ExportError
from minding.engine.files import as_json
from minding.engine.paths import absolute
from minding.engine.run.pool import Version
from minding.engine.run.run_dir import RunDir
from minding.engine.types import EvalMode, Obs
from minding.envs import make_evaluator_env
from minding.policies.export.reader import ExportedPolicy, Parity, compare, draw_memory
from minding.training.loading import load_policy

PARITY_OBSERVATIONS = 1000


@dataclasses.dataclass(frozen=True)
class Export:
    """An exported file and its description."""

    path: Path
    description: dict[str, Any]


def export_run(
    run: RunDir, file_format: str, ckpt: str | Path | Version | None = None, out: str | Path | None = None
) -> Export:
    """Exports the policy of a run.

    Args:
      run: the run folder.
      file_format: 'mindir' or 'onnx'.
      ckpt: a checkpoint folder, or a version of the run's model pool; the newest checkpoint by default.
      out: the file; ``<run>/policy.<format>`` by default.

    Raises:
      CheckpointError: if there is no undamaged checkpoint, or it does not belong to this run.
      ExportError: if the name does not end with the format, the file cannot be written, or its outputs differ from the
        policy's.
      MissingExtraError: if packages for ONNX are not installed.
    """
    path = absolute(out) if out else run.products / f"policy.{file_format}"
    if path.suffix != f".{file_format}":
        raise ExportError(f"{path}: expected a name that ends with .{file_format}; rename it, or change the format")
    policy: Any
    cfg, policy, found = load_policy(run, ckpt)
    from minding.policies.export.writer import export_policy

    info = {
        "algorithm": cfg.policy.type,
        "env_id": cfg.env.env_id,
        "checkpoint": found.stem if isinstance(ckpt, Version) else found.name,
        "observation_space": cfg.env.spec.observation,
        "action_space": cfg.env.spec.env_action,
        "versions": {
            "minding": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("mindspore", "numpy", "gymnasium")},
        },
    }
    return Export(path, export_policy(policy, path, file_format, info=info))


def open_exported(run: RunDir, file: str | Path) -> tuple[ExportedPolicy, Parity]:
    """Opens an exported file and compares it with the newest policy of a run, on observations from episodes.

    Args:
      run: the run from which the file was exported.
      file: the exported file.

    Returns:
      The file, ready to act, and the comparison; the caller decides whether the outputs are close enough.

    Raises:
      CheckpointError: if there is no undamaged checkpoint, or it does not belong to this run.
      ExportError: if the file is damaged, has another algorithm or other spaces than the run, or acts for one of
        several agents.
      MissingExtraError: if the file is an ONNX file and onnxruntime is not installed.
    """
    policy: Any
    cfg, policy, _ = load_policy(run)
    agents = num_agents(cfg.env.spec)
    if agents is not None:
        raise ExportError(
            f"{file}: it acts for one agent, but env.env_id={cfg.env.env_id!r} has {agents}: evaluate them with the "
            "run's own policy, without --exported"
        )
    exported = ExportedPolicy(file)
    expected = {
        "algorithm": cfg.policy.type,
        "env_id": cfg.env.env_id,
        "observation_space": cfg.env.spec.observation,
        "action_space": cfg.env.spec.env_action,
    }
    for key, value in as_json(expected).items():
        given = exported.description.get(key)
        if given != value:
            raise ExportError(
                f"{file}: its {key} is {given!r}, but the run {run.path} has {value!r}: give the run that it was "
                f"exported from"
            )
    obs = _observations(cfg, policy.eval_mode)
    memory = draw_memory(policy, PARITY_OBSERVATIONS)
    try:
        outputs = exported.outputs(obs, memory)
        return exported, compare(policy, outputs, obs, memory)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise ExportError(
            f"{file}: its inputs or outputs differ from those of the policy of {run.path} ({first_line(error)}): "
            f"export again"
        ) from error


def _observations(cfg: Config, acting: EvalMode, count: int = PARITY_OBSERVATIONS) -> Obs:
    """The first `count` observations of play in evaluation environments."""
    env = make_evaluator_env(cfg, "env.parity")
    try:
        seen = [env.obs]
        while len(seen) * env.num_envs < count:
            step = env.play(acting.forward(seen[-1]))
            begun = step.begun()
            if begun is not None:
                acting.reset(begun)
            seen.append(step.obs)
    finally:
        env.close()
    joined = obs_trees.tree_map(lambda *arrays: np.concatenate(arrays), *seen)
    return obs_trees.index(joined, slice(count))
