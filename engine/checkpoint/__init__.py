"""Checkpoints: folders with arrays (safetensors), everything else (JSON) and a manifest with checksums.

A checkpoint is written to a hidden folder, synced and renamed, so that a folder with the final name is whole, whenever
the process is killed or the power fails. Large arrays are kept in blocks, and a block that has not changed is linked
from an earlier checkpoint. Nothing on the load path runs code.
"""

from minding.engine.checkpoint.folder import (
    BEST,
    Checkpoint,
    link_source,
    list_checkpoints,
    newest_checkpoint,
    prune_checkpoints,
    resumable_checkpoints,
    set_aside,
    step_of,
    use_checkpoint,
    use_newest,
)
from minding.engine.checkpoint.manifest import SCHEMA, read_manifest
from minding.engine.checkpoint.state_tree import BlockArray, not_finite
from minding.engine.checkpoint.store import (
    check_savable,
    load_checkpoint,
    map_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)

__all__ = [
    "BEST",
    "SCHEMA",
    "BlockArray",
    "Checkpoint",
    "check_savable",
    "link_source",
    "list_checkpoints",
    "load_checkpoint",
    "map_checkpoint",
    "newest_checkpoint",
    "not_finite",
    "prune_checkpoints",
    "read_manifest",
    "resumable_checkpoints",
    "save_checkpoint",
    "set_aside",
    "step_of",
    "use_checkpoint",
    "use_newest",
    "verify_checkpoint",
]
