"""Recorded data that presets learn from: what a policy does, random play, or all that a run did.

``python -m proofs.recordings PRESET FOLDER [SETTING ...]`` trains a preset and writes all its rollouts, a replay set.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from minding import Agent
from minding.configs import load_preset
from minding.engine.data.references import References
from minding.middleware import offline_data_saver


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a part of recorded data is from.

    Attributes:
      preset: whose policy is trained and recorded, without exploration unless `explore`; empty: random play.
      steps: how many environment steps are recorded; 0: all that the preset's own run takes, its replay set.
      env_step: environment steps for which it is trained; 0: as many as its own proof has.
      explore: it plays as while collecting.
    """

    preset: str = ""
    steps: int = 0
    env_step: int = 0
    explore: bool = False

    @property
    def title(self) -> str:
        """For a table."""
        if not self.steps:
            return f"all that `{self.preset}` did while it learned"
        player = f"`{self.preset}`" if self.preset else "random play"
        trained = f" trained for {self.env_step:,} steps" if self.env_step else ""
        how = ", exploring" if self.explore else ""
        return f"{self.steps:,} steps of {player}{trained}{how}"

    @property
    def name(self) -> str:
        """Of its folder."""
        after = self.env_step and f"after_{self.env_step}"
        parts = (self.preset or "random", after, self.explore and "explored", self.steps or "replay")
        return "_".join(str(part) for part in parts if part)

    def command(self, policy: Path | None, env_id: str, out: Path) -> list[str]:
        """What records it, for Python: a module and its arguments.

        Args:
          policy: run folder of the trained preset, where its policy is recorded.
          env_id: the environment of random play.
          out: the folder to write.
        """
        if not self.steps:
            return ["proofs.recordings", self.preset, str(out), f"run.out_dir={out.parent}", f"exp_name={out.stem}_run"]
        of = ["--random", "--env", env_id, "--seed", "0"] if policy is None else [str(policy)]
        how = ["--explore"] * self.explore
        return ["minding", "data", "record", *of, *how, "--steps", str(self.steps), "--out", str(out)]


REFERENCES = {
    "Pendulum-v1": References(-1170.0, -136.0),
    "CartPole-v1": References(22.5, 500.0),
    "Acrobot-v1": References(-500.0, -87.0),
}
"""By environment, the returns that score 0 and 100: of random play, and of the trained policies that are recorded."""


def folder_name(sources: Sequence[Source], env_id: str) -> str:
    """Of the data that are made of some sources: two environments have random play of their own."""
    of = "" if any(source.preset for source in sources) else f"{env_id}_"
    return of + "_and_".join(source.name for source in sources)


def main(argv: Sequence[str]) -> None:
    preset, folder, *settings = argv
    agent = Agent(load_preset(preset), settings=settings)
    agent.learn(use=[offline_data_saver(agent.cfg, folder)])


if __name__ == "__main__":
    main(sys.argv[1:])
