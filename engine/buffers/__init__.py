"""Replay buffers: struct-of-arrays rings in device memory, sampled by index."""

from typing import TYPE_CHECKING

from minding.engine.buffers.episode import EpisodeBuffer, SequenceBatch
from minding.engine.buffers.mixed import MixedBuffer
from minding.engine.buffers.prioritized import PrioritizedBuffer
from minding.engine.buffers.recorded import DatasetTables, MappedTables
from minding.engine.buffers.reservoir import ReservoirBuffer
from minding.engine.buffers.ring import Ring
from minding.engine.buffers.sequences import PrioritizedSequenceBuffer
from minding.engine.buffers.table import Rows, Table, Tables
from minding.engine.buffers.tables import DeviceTables
from minding.engine.buffers.uniform import UniformBuffer
from minding.other_names import missing_name

__all__ = [
    "DatasetTables",
    "DeviceTables",
    "EpisodeBuffer",
    "MappedTables",
    "MixedBuffer",
    "PrioritizedBuffer",
    "PrioritizedSequenceBuffer",
    "ReservoirBuffer",
    "Ring",
    "Rows",
    "SequenceBatch",
    "Table",
    "Tables",
    "UniformBuffer",
]

if not TYPE_CHECKING:
    # Type checkers report missing names without this function.

    def __getattr__(name):
        raise missing_name(__name__, name)
