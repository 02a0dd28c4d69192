"""Recorded data of all presets, and what else learns from them: BC from all, some presets from the data of others."""

from __future__ import annotations

import dataclasses
import functools

from minding.configs import load_preset
from proofs.recordings import Source, folder_name
from proofs.runs import LEARNING, OFFLINE, Job, compiled

SEEDS = 3
_CLONING_STEPS = 10_000
"""Gradient steps of BC on the data of a preset that plays while it learns."""
CROSSED: dict[str, tuple[str, ...]] = {
    "pendulum_td3_bc": ("pendulum_iql",),
    "pendulum_rebrac": ("pendulum_iql",),
    "pendulum_iql": ("pendulum_awac", "pendulum_td3_bc"),
    "pendulum_cql": ("pendulum_awac",),
}
"""By preset, those whose data it learns from in addition to its own."""
LEARNERS = ("bc", *CROSSED)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Recorded data.

    Attributes:
      name: of their folder.
      env_id: their environment.
      sources: what they are made of.
      presets: those that learn from them, without BC's.
    """

    name: str
    env_id: str
    sources: tuple[Source, ...]
    presets: tuple[str, ...]

    @property
    def title(self) -> str:
        """The name of the data in a table."""
        first, *others = self.sources
        kind = f"{self.kind} ({first.steps:,} steps each)" if others else first.title
        return f"{self.env_id.partition('-v')[0]}: {kind}"

    @property
    def kind(self) -> str:
        """The kind of the data in a word or two."""
        explores = ", exploring" if any(source.explore for source in self.sources) else ""
        if len(self.sources) > 1:
            return f"medium + expert{explores}"
        (source,) = self.sources
        if not source.steps:
            return "replay"
        return "random" if not source.preset else f"expert{explores}"


@functools.cache
def data_sets() -> dict[str, DataSet]:
    """The data that the proofs of presets name, by name, in the order of the presets."""
    found: dict[str, DataSet] = {}
    for preset, proof in LEARNING.items():
        main = load_preset(preset)
        if not proof.recorded or main.policy.type == "bc":
            continue
        name = folder_name(proof.recorded, main.env.env_id)
        earlier = found[name].presets if name in found else ()
        found[name] = DataSet(name, main.env.env_id, proof.recorded, (*earlier, preset))
    return found


def data_of(preset: str) -> DataSet:
    """The data that a preset learns from."""
    return next(each for each in data_sets().values() if preset in each.presets)


def jobs(seeds: int | None = None) -> list[Job]:
    """BC on all data, then the presets of `CROSSED`; `seeds`: of each, `SEEDS` if None."""
    count = range(seeds or SEEDS)
    cloned = [(each, _cloning(each)) for each in data_sets().values()]
    return [
        *(Job(OFFLINE, "bc", seed, 0, changes, recorded=each.sources) for each, changes in cloned for seed in count),
        *(
            Job(OFFLINE, preset, seed, 0, recorded=data_of(other).sources)
            for preset, others in CROSSED.items()
            for other in others
            for seed in count
        ),
    ]


def _cloning(data: DataSet) -> tuple[str, ...]:
    """Settings of BC on these data: as many gradient steps as the first preset makes on them."""
    cfg = compiled(data.presets[0], ())
    steps = cfg.run.max_train_iter or _CLONING_STEPS
    return (
        f"env.env_id={data.env_id}",
        "policy.model.hidden=[256,256]",
        "policy.model.normalize_obs=true",
        "policy.learn.batch_size=256",
        f"policy.eval.freq={steps // 10}",
        f"policy.eval.n_episode={cfg.policy.eval.n_episode}",
        f"run.max_train_iter={steps}",
    )
