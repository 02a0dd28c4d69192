"""Replay buffers: struct-of-arrays rings in device memory, sampled by index."""

from minding.engine.buffers.base import BaseBuffer
from minding.engine.buffers.dataset_rows import DatasetTables, MappedTables
from minding.engine.buffers.device_tables import DeviceTables
from minding.engine.buffers.mixed import MixedBuffer
from minding.engine.buffers.priorities import Priority
from minding.engine.buffers.replay import ReplayBuffer
from minding.engine.buffers.ring import Ring
from minding.engine.buffers.sequences import SequenceBatch, Sequences
from minding.engine.buffers.table import Rows, Table, Tables

__all__ = [
    "BaseBuffer",
    "DatasetTables",
    "DeviceTables",
    "MappedTables",
    "MixedBuffer",
    "Priority",
    "ReplayBuffer",
    "Ring",
    "Rows",
    "SequenceBatch",
    "Sequences",
    "Table",
    "Tables",
]
