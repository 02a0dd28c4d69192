"""Recorded data as rows on the device: each field of each step, however it is stored."""

import numpy as np
import pytest

from minding.engine.buffers import DatasetTables, MappedTables
from minding.engine.data.batch import Field
from minding.engine.data.dataset import Dataset

ENDS = np.array([2, 3, 8])
"""Episodes of three steps, one, and five."""


def recorded(leaves):
    """Nine steps; the observation before step i is full of 10 i, the final one of an episode of one more than that."""

    def full(numbers, shape, dtype):
        return np.broadcast_to(numbers.reshape(-1, *[1] * len(shape)), (len(numbers), *shape)).astype(dtype)

    numbers = 10 * np.arange(9)
    box = {"kind": "box", "shape": [1], "low": [-2.0], "high": [2.0], "dtype": "float32", "rescaled": True}
    return Dataset(
        obs={path: full(numbers, *leaf) for path, leaf in leaves.items()},
        action=np.linspace(-2, 2, 9, dtype=np.float32)[:, None],
        reward=np.arange(9, dtype=np.float32),
        terminated=np.isin(np.arange(9), ENDS[:2]),
        truncated=np.zeros(9, bool),
        end=ENDS,
        final_obs={path: full(10 * ENDS + 1, *leaf) for path, leaf in leaves.items()},
        about={"env": {"env_action": box}},
        digest="a",
    )


def fields_of(leaves):
    named = {
        f"{prefix}.{path}" if path else prefix: Field(*leaf)
        for prefix in ("obs", "next_obs")
        for path, leaf in leaves.items()
    }
    return {
        **named,
        "action": Field((1,)),
        "reward": Field(),
        "terminated": Field(dtype="bool"),
        "discount": Field(default=0.5),
    }


LEAVES = {
    "vector": {"": ((2,), "float32")},
    "image": {"": ((2, 3), "uint8")},
    "both": {"image": ((2, 3), "uint8"), "vector": ((4,), "float32")},
}


@pytest.mark.parametrize("name", LEAVES)
def test_minibatches_hold_all_fields_and_true_successors(name):
    leaves = LEAVES[name]
    tables = DatasetTables(recorded(leaves), fields_of(leaves))
    index = np.array([[8, 0, 2], [3, 7, 1]])
    batch = tables.batch(index)
    assert (len(tables), tables.digest, batch.index.dtype) == (9, "a", np.int32)
    for path, (shape, dtype) in leaves.items():
        suffix = f".{path}" if path else ""
        before = batch.layout.read(batch.tables.host, f"obs{suffix}", batch.index)
        where = batch.successor if dtype == "uint8" else batch.index
        after = batch.layout.read(batch.tables.host, f"next_obs{suffix}", where)
        assert before.shape == after.shape == (2, 3, *shape)
        assert (before.reshape(2, 3, -1)[..., 0] == 10 * index).all()
        assert after.reshape(2, 3, -1)[..., -1].tolist() == [[81, 10, 21], [31, 80, 20]]
    others = {name: batch.layout.read(batch.tables.host, name, index) for name in ("reward", "terminated", "discount")}
    assert (others["reward"] == index).all()
    assert (others["discount"] == 0.5).all()
    assert others["terminated"].tolist() == [[False, False, True], [True, False, False]]
    # In the policy's own units, [-1, 1].
    action = batch.layout.read(batch.tables.host, "action", index)[..., 0]
    assert np.allclose(action, index / 4 - 1)


@pytest.mark.parametrize("name", LEAVES)
def test_mapped_data_give_the_rows_that_are_drawn(name):
    leaves = LEAVES[name]
    data, fields = recorded(leaves), fields_of(leaves)
    tables, mapped = DatasetTables(data, fields), MappedTables(data, fields, 6)
    for index in (np.array([[8, 0, 2], [3, 7, 1]]), np.array([[5, 5, 4]])):
        expected, found = tables.batch(index), mapped.batch(index)
        assert found.index.shape == index.shape
        for field in fields:
            column = expected.layout.columns[field]
            where = expected.successor if column.linked else expected.index
            given = found.layout.read(found.tables.host, field, found.index)
            assert given.tobytes() == expected.layout.read(expected.tables.host, field, where).tobytes()
    # The compiled update gathers from the same tables throughout.
    assert found.tables is mapped.batch(np.zeros((1, 2), int)).tables


@pytest.mark.parametrize("kind", [DatasetTables, MappedTables])
def test_sequences_end_with_the_drawn_steps_in_one_episode(kind):
    data, fields = recorded(LEAVES["vector"]), fields_of(LEAVES["vector"])
    tables = kind(data, fields, 9) if kind is MappedTables else kind(data, fields)
    batch = tables.batch(np.array([[8, 1, 3]]), 3)
    rewards = batch.layout.read(batch.tables.host, "reward", batch.index)
    # The steps of each sequence are below each other. Before its episode, a sequence repeats the first step.
    assert rewards.tolist() == [[[6, 0, 3], [7, 0, 3], [8, 1, 3]]]
    assert batch.valid.tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
