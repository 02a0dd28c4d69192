"""What the tests of buffers share: rows that say which they are, what a buffer holds, and whether samples are even."""

import numpy as np

from minding.engine.checkpoint import load_checkpoint, save_checkpoint
from minding.engine.data.batch import Field

FIELDS = {"number": Field(), "image": Field((2,), "uint8")}
"""Two tables."""


def rows(*numbers, priority=None):
    """One row for each number, from which all its fields follow."""
    x = np.array(numbers, np.int64)
    given = {} if priority is None else {"priority": np.array(priority, np.float64)}
    return {"number": x.astype(np.float32), "image": np.repeat((x % 256).astype(np.uint8), 2).reshape(-1, 2), **given}


def numbers(batch):
    """The numbers of the rows of a batch; checks that the fields of each row belong together."""
    return checked(*(batch.layout.read(batch.tables.host, name, batch.index) for name in FIELDS))


def contents(store, places=None):
    """The numbers of the rows at these places of a ring or of stamped rows, by default from the first on."""
    places = np.arange(len(store)) if places is None else places
    return checked(*(store.read(name, places) for name in FIELDS)).tolist()


def checked(found, image):
    assert np.array_equal(image, np.repeat(found[..., None] % 256, 2, axis=-1))
    return found.astype(int)


def evenly(counts):
    """Whether counts of equally likely outcomes pass a chi-square test at 0.1 %, for up to 9 degrees of freedom."""
    limit = [0, 10.8, 13.8, 16.3, 18.5, 20.5, 22.5, 24.3, 26.1, 27.9][len(counts) - 1]
    expected = np.mean(counts)
    return ((np.array(counts) - expected) ** 2 / expected).sum() < limit


def saved_twice(folder, buffer, change):
    """Saves a buffer, changes it and saves it again; returns the later state, and which of its blocks are links."""
    save_checkpoint(folder / "iter_1", buffer.state_dict(), {})
    change()
    save_checkpoint(folder / "iter_2", buffer.state_dict(), {}, previous=folder / "iter_1")
    pairs = zip(*(sorted((folder / name).glob("block-*")) for name in ("iter_1", "iter_2")), strict=True)
    return load_checkpoint(folder / "iter_2")[0], [one.samefile(two) for one, two in pairs]
