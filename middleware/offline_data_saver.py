"""Writes collected rollouts to a folder of recorded data: a replay set."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.chain.context import Context, OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.actions import ActionAdapter
from minding.engine.data.agent_axis import num_agents
from minding.engine.data.dataset import Dataset, episodes_of, joined, load_dataset
from minding.engine.data.dataset_writer import DatasetWriter, save_dataset
from minding.engine.data.description import describe
from minding.engine.data.episode import Episode
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.data.rollout_joins import OpenEpisodes
from minding.engine.errors import CheckpointError, DataError
from minding.engine.files import Folder, hidden
from minding.engine.paths import absolute
from minding.engine.types import Array, StateDict
from minding.middleware.ctx_fields import rollout_in

_NO_LIMIT = 1 << 62


@declare(role="learn", reads=("trajectories",), refuses=("trajectories.summed", "trajectories.rewarded"))
class offline_data_saver:
    """Writes all rollouts of a run to a folder of recorded data: the replay set of a learning agent.

    During the run, whole episodes are written in parts, beside the folder. The folder itself is written when the run
    ends, however it ends; episodes that are running then are cut. A resumed run continues with the data up to its
    checkpoint, even if its process was killed.

    Reads: trajectories.
    Config: env.

    Args:
      cfg: the compiled configuration.
      folder: the folder to write; it must not exist yet, unless the run is resumed.
    """

    part_steps = 1 << 14
    """Steps of whole episodes that are held in memory before they are written as a part."""

    def __init__(self, cfg: Config, folder: str | Path) -> None:
        self._cfg, self._folder = cfg, absolute(folder)
        self._parts_folder = self._folder.with_name(f"{self._folder.name}.parts")
        self._open = OpenEpisodes(_NO_LIMIT)
        self._held: list[Episode] = []
        self._parts: list[int] = []
        self._owns = self._written = False

    @functools.cached_property
    def _about(self) -> dict[str, Any]:
        cfg = self._cfg
        return {"env": describe(cfg.env), "player": f"{cfg.policy.type} while it learned", "seed": cfg.seed}

    def requirements(self) -> Sequence[str]:
        env = self._cfg.env
        if num_agents(env.spec) is not None:
            return [f"{env.env_id} has several agents, and recorded data hold the steps of one"]
        for key, off in (("normalize_reward", "false"), ("reward_clip", "none"), ("episodic_life", "false")):
            if env[key]:
                return [
                    f"env.{key}={env[key]} changes rewards or ends while collecting, and recorded data hold the "
                    f"environment's own: set env.{key}={off}"
                ]
        return []

    def __call__(self, ctx: OnlineRLContext) -> None:
        rollout = rollout_in(ctx, "offline_data_saver")
        if not self._owns:
            self._refuse_earlier()
        for rows in self._open.add(rollout, self._columns(rollout)):
            self._held.append(_episode(rows))
        if sum(map(len, self._held)) >= self.part_steps:
            data = joined(self._held, self._about)
            save_dataset(self._part(len(self._parts)), data)
            self._parts.append(len(data))
            self._held = []

    def _refuse_earlier(self) -> None:
        for path in (self._folder, self._parts_folder):
            if path.exists():
                raise DataError(f"offline_data_saver: {str(path)!r} exists: remove it, or give another folder")
        self._owns = True

    def _columns(self, rollout: Rollout) -> dict[str, Array]:
        steps, envs = rollout.shape
        action = ActionAdapter(self._cfg.env.spec.env_action)(rollout.action.reshape(-1, *rollout.action.shape[2:]))
        return {
            **dict(named_leaves("obs", rollout.obs)),
            **dict(named_leaves("next_obs", rollout.next_obs())),
            "action": action.reshape(steps, envs, *action.shape[1:]),
            "reward": rollout.reward,
            "terminated": rollout.terminated,
            "truncated": rollout.truncated,
        }

    def _part(self, number: int) -> Path:
        return self._parts_folder / f"{number:06d}"

    def finish(self, ctx: Context) -> None:
        """Writes the folder; DataError if it cannot be written: the parts stay."""
        self._written = False
        running = [_episode(rows) for rows in self._open.rest()]
        if not (self._parts or self._held or running):
            return
        fresh, gone = self._folder.with_name(f"{self._folder.name}.new"), hidden(self._folder).name
        with self._opened() as folder:
            folder.discard(fresh.name)
            with DatasetWriter(fresh, self._about) as writer:
                for number in range(len(self._parts)):
                    writer.append(load_dataset(self._part(number), mapped=True))
                if self._held or running:
                    writer.append(joined([*self._held, *running], self._about))
            if folder.status(self._folder.name) is not None:
                # An earlier end of this run wrote it.
                folder.discard(gone)
                folder.rename(self._folder.name, gone)
            folder.rename(fresh.name, self._folder.name)
            folder.sync()
            folder.discard(gone)
        self._written = True

    def close(self) -> None:
        """Removes the parts, whose steps are in the folder now."""
        if self._written:
            with self._opened() as folder:
                folder.discard(self._parts_folder.name)

    def _opened(self) -> Folder:
        """The folder that holds the data and their parts."""
        return Folder(self._folder.parent, make=True, follow=True)

    def state_dict(self) -> StateDict:
        held = joined(self._held, self._about) if self._held else None
        return {
            "parts": list(self._parts),
            "open": self._open.state_dict(),
            "held": None if held is None else _arrays(held),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continues with the data up to the checkpoint, and drops later data; CheckpointError if the former no longer
        exist."""
        self._owns = True
        self._parts = [int(steps) for steps in state["parts"]]
        self._open.load_state_dict(state["open"])
        held = state["held"]
        self._held = [] if held is None else list(episodes_of(Dataset(**held, about=self._about)))
        if not all(self._part(number).exists() for number in range(len(self._parts))):
            self._split_folder(sum(self._parts))
        if self._parts_folder.exists():
            with Folder(self._parts_folder) as folder:
                kept = {self._part(number).name for number in range(len(self._parts))}
                folder.discard(*(name for name in folder.names() if name not in kept))

    def _split_folder(self, steps: int) -> None:
        """Turns the first steps of the folder into a part: the parts were removed when the folder was written."""
        with self._opened() as folder:
            folder.discard(self._parts_folder.name)
        try:
            episodes = episodes_of(load_dataset(self._folder, mapped=True))
            with DatasetWriter(self._part(0), self._about) as writer:
                for episode in _first(episodes, steps):
                    writer.add(episode)
        except (DataError, ValueError) as error:
            raise CheckpointError(
                f"offline_data_saver: the {steps:,} steps that were saved by then are not in {str(self._folder)!r} any "
                f"more ({error}): start a new run"
            ) from None
        self._parts = [steps]


def _first(episodes: Iterator[Episode], steps: int) -> Iterator[Episode]:
    """The episodes that make up the first steps."""
    count = 0
    while count < steps:
        episode = next(episodes, None)
        if episode is None or count + len(episode) > steps:
            raise ValueError(f"an episode ends at step {count:,}")
        count += len(episode)
        yield episode


def _arrays(data: Dataset) -> dict[str, Any]:
    names = ("obs", "action", "reward", "terminated", "truncated", "end", "final_obs")
    return {name: getattr(data, name) for name in names}


def _episode(rows: dict[str, Array]) -> Episode:
    """The episode that these rows, by name, make up."""

    def part(prefix: str) -> dict[str, Array]:
        named = [name for name in rows if name == prefix or name.startswith(f"{prefix}.")]
        return {name.removeprefix(prefix).removeprefix("."): rows[name] for name in named}

    return Episode(
        obs=part("obs"),
        final_obs={path: values[-1] for path, values in part("next_obs").items()},
        action=rows["action"],
        reward=rows["reward"].astype(np.float32, copy=False),
        terminated=bool(rows["terminated"][-1]),
        truncated=bool(rows["truncated"][-1]),
    )
