"""Environments stepped one after the other in this process."""

from minding.engine.data.actions import ActionAdapter
from minding.engine.types import Array
from minding.envs.backends.group import EnvGroup, StepArrays
from minding.envs.backends.source import EpisodeSource
from minding.envs.guards.watchdog import Watch
from minding.envs.single.factory import EnvFactory
from minding.envs.spaces.layout import ObsLayout


class LocalSource(EpisodeSource):
    """The sync backend: any Gymnasium environments, in a loop."""

    def __init__(
        self, factory: EnvFactory, layout: ObsLayout, adapter: ActionAdapter, num_envs: int, seed: int, restart: bool
    ) -> None:
        arrays = StepArrays.allocate(layout, num_envs)
        super().__init__(factory.name, layout, arrays, adapter, seed, replays=not factory.single_instance)
        self.first = factory.first
        self._group = EnvGroup(factory, factory.name, range(self.num_envs), layout, arrays, restart, factory.first)
        self._watch = Watch(self._group.activity, self._who, factory.step_timeout)
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._group.close()
            self._watch.close()

    def _reset_envs(self) -> list[str]:
        self._group.seed = self.seed
        self._group.reset()
        return self._faults()

    def _step_envs(self, actions: Array) -> tuple[list[Array], list[str]]:
        # With fresh memory in each step, arrays that were returned are never overwritten, and no copy is needed.
        self.arrays.next_obs = self.layout.allocate(self.num_envs)
        self._group.step(actions)
        return self.arrays.next_obs, self._faults() if self._group.faults else []

    def _replay_env(self, row: int, actions: Array) -> None:
        self._group.seed = self.seed
        self._group.replay(row, actions)

    def _begin_env(self, row: int) -> None:
        self._group.seed = self.seed
        self._group.begin(row)

    def _who(self) -> str:
        return self._group.who(int(self.arrays.running[0]))

    def _faults(self) -> list[str]:
        faults, self._group.faults = self._group.faults, []
        return faults
