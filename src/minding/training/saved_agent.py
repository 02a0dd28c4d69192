"""A trained policy as a folder for others: weights, configuration, their checksums, model card, a video."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minding import __version__
from minding.engine.checkpoint import load_checkpoint, read_manifest, save_checkpoint
from minding.engine.checkpoint.manifest import MANIFEST, sha256
from minding.engine.checkpoint.store import MISFITS, arrays_of
from minding.engine.config.config import Config
from minding.engine.config.options import setting_at
from minding.engine.config.trust import save_own, without_reach
from minding.engine.console import console_logger
from minding.engine.data.episode import RECORDED
from minding.engine.data.scratch import Scratch
from minding.engine.errors import CheckpointError, ConfigError, DataError
from minding.engine.files import read_bounded
from minding.engine.paths import absolute, shown, without_home
from minding.engine.types import Array, Policy
from minding.training.film import film_episode

if TYPE_CHECKING:
    from minding.training.evaluation import Evaluation

WEIGHTS = "policy.safetensors"
CONFIG = "config.yaml"
LEARNER = "learner"
"""Folder with what learning continues from, in the form of a checkpoint; it may be missing."""
CHECKSUMS = "checksums.json"
"""File with the checksums of `WEIGHTS`, `CONFIG` and the manifest of `LEARNER`, which belong together: each determines
what the others mean."""
_MAX_CHECKSUMS = 1 << 16
_MAX_BYTES = 1 << 34


def save_policy(
    path: Path, cfg: Config, policy: Policy, evaluate: Callable[[], Evaluation] | None, clock: int | None = None
) -> None:
    """Writes the folder of a trained policy: all of it, or nothing."""
    from safetensors.numpy import save

    acting: Any = policy
    arrays, network = acting.acting_arrays()
    try:
        with Scratch(path) as scratch:
            evaluation = None if evaluate is None else evaluate()
            # Not `ascontiguousarray`, which turns a single number into an array with an axis.
            ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
            about = {"format": "minding", "version": __version__, "network": network}
            (scratch.folder / WEIGHTS).write_bytes(save(ordered, metadata=about))
            save_own(_shareable(cfg), scratch.folder / CONFIG)
            if clock is not None:
                save_checkpoint(scratch.folder / LEARNER, {"policy": policy.state_dict()}, {"clock": clock})
            write_checksums(scratch.folder)
            film = _film(scratch.folder / "episode.gif", cfg, policy)
            (scratch.folder / "README.md").write_text(_card(path.name, cfg, evaluation, film), encoding="utf-8")
            scratch.finish()
    except DataError as error:
        raise ConfigError(f"save: {error}") from None
    except OSError as error:
        raise ConfigError(f"save: {str(path)!r} cannot be written: {error.strerror}") from None


def _shareable(cfg: Config) -> Config:
    """The settings for others: without those that reach out of the run. Recorded data stay named, from the current or
    the home folder, so that the user's name is left out."""
    shared, data = without_reach(cfg), setting_at(cfg, "policy.other.data")
    if data:
        shared.policy.other.data = without_home(shown(absolute(str(data))))
    return shared


def is_saved(path: Path) -> bool:
    """Whether `save_policy` wrote this folder."""
    return (path / WEIGHTS).is_file()


def write_checksums(path: Path) -> None:
    """Writes the checksums of a folder's weights and configuration."""
    files = {name: sha256((path / name).read_bytes()) for name in _files(path)}
    (path / CHECKSUMS).write_text(json.dumps({"sha256": files}, indent=2) + "\n", encoding="utf-8")


def _files(path: Path) -> list[str]:
    """The files with checksums; `LEARNER` may have been removed to make the folder smaller."""
    manifest = f"{LEARNER}/{MANIFEST}"
    return [WEIGHTS, CONFIG, *([manifest] if os.path.lexists(path / LEARNER) else [])]


def check_saved(path: Path) -> None:
    """Refuses a folder whose weights or configuration have changed since they were saved."""
    again = "copy the folder again, or save the agent again"
    try:
        saved = json.loads(read_bounded(path / CHECKSUMS, _MAX_CHECKSUMS))["sha256"]
        expected = {name: saved[name] for name in _files(path)}
    except (OSError, *MISFITS) as error:
        what = getattr(error, "strerror", None) or type(error).__name__
        raise CheckpointError(
            f"{path / CHECKSUMS} does not hold the checksums of a saved policy ({what}): {again}"
        ) from None
    for name, checksum in expected.items():
        try:
            found = sha256(read_bounded(path / name, _MAX_BYTES))
        except OSError as error:
            raise CheckpointError(f"{path / name} cannot be read: {error.strerror}: {again}") from None
        if found != checksum:
            raise CheckpointError(
                f"{path / name} has changed since it was saved: its SHA-256 is not the one in {CHECKSUMS}; {again}"
            )


def read_weights(path: Path) -> tuple[dict[str, Array], str]:
    """The arrays of a saved folder, by name, and the class of the network."""
    try:
        arrays, metadata = arrays_of(read_bounded(path / WEIGHTS, _MAX_BYTES))
        return arrays, str(metadata.get("network", ""))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / WEIGHTS} cannot be read: {error}") from None


def warm_start(policy: Policy, path: Path) -> None:
    """Copies the learned state of a saved folder into a new policy. Random streams and the memory of recurrent policies
    stay its own. Without `LEARNER` these are the weights of the acting network, which are also copied to its target,
    and the moments of observations; everything else keeps its initial values."""
    acting: Any = policy
    acting.load_acting_arrays(*read_weights(path))
    if (path / LEARNER).is_dir():
        saved, own = load_checkpoint(path / LEARNER)[0]["policy"], policy.state_dict()
        policy.load_state_dict({**saved, "acting": own["acting"], "rng": own["rng"]})


def trained_steps(path: Path) -> int | None:
    """The clock of the run at which a folder was saved; None without `LEARNER`."""
    if not (path / LEARNER).is_dir():
        return None
    clock = read_manifest(path / LEARNER).get("clock")
    return clock if isinstance(clock, int) else None


def _film(file: Path, cfg: Config, policy: Policy) -> bool:
    """Films an episode; returns whether that was possible."""
    reason = film_episode(file, cfg, policy)
    if reason is not None:
        console_logger().info("saved without a video: %s", " ".join(reason.split()))
    return reason is None


def _evaluation_text(evaluation: Evaluation) -> str:
    """The results of the evaluation, in a sentence."""
    low, high = evaluation.interval
    games = len(evaluation.returns)
    if evaluation.scores:
        each = "; ".join(f"against {opponent} {score}" for opponent, score in evaluation.scores.items())
        return f"Mean score {evaluation.mean:.3f} over {games:,} games: {each}. A win scores 1, a draw 0.5, a loss 0."
    return (
        f"Mean return {evaluation.mean:.1f} over {games} episodes without exploration (95 % interval {low:.1f} to "
        f"{high:.1f}, standard deviation {evaluation.std:.1f})."
    )


def _card(name: str, cfg: Config, evaluation: Evaluation | None, film: bool) -> str:
    """The model card, with the metadata that the Hugging Face Hub reads."""
    env_id, algorithm = cfg.env.env_id, cfg.policy.type
    alone = env_id == RECORDED
    head: dict[str, Any] = {
        "library_name": "minding",
        "tags": ["reinforcement-learning", "mindspore", algorithm, *([] if alone else [env_id])],
    }
    text = [f"# {algorithm} on {'recorded data' if alone else env_id}", ""]
    if evaluation is not None:
        head["model-index"] = [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                        "dataset": {"name": env_id, "type": env_id},
                        "metrics": [
                            {
                                "type": "mean_reward",
                                "name": "mean score" if evaluation.scores else "mean return",
                                "value": f"{evaluation.mean:.2f} +/- {evaluation.std:.2f}",
                            }
                        ],
                    }
                ],
            }
        ]
        text += [_evaluation_text(evaluation), ""]
    if film:
        text += ["![An episode](episode.gif)", ""]
    text += [
        f"Trained with minding {__version__}; the settings are in `config.yaml`.",
        "",
        "```python",
        "import minding",
        "",
        f'agent = minding.load("{name}")',
        *([] if alone else ["print(agent.evaluate(10))"]),
        "action = agent.predict(obs)",
        "```",
        "",
    ]
    # JSON is valid YAML.
    front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in head.items())
    return f"---\n{front}\n---\n\n" + "\n".join(text)
