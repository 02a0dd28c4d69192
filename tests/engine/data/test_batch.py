"""Row layouts: named arrays in few tables and back."""

import numpy as np
import pytest

from minding.engine.data.batch import Field, RowLayout

LAYOUT = RowLayout(
    {
        "obs": Field((2,)),
        "image": Field((1, 2, 2), "uint8"),
        "action": Field((), "int32"),
        "grid": Field((2, 2)),
        "discount": Field(default=0.5),
    }
)
VALUES = {
    "obs": np.array([[1, 2], [3, 4]], np.float32),
    "image": np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2),
    "action": np.array([7, 2**24 - 1]),
    "grid": np.arange(8, dtype=np.float32).reshape(2, 2, 2),
}


def test_numbers_share_one_table_and_every_image_has_its_own():
    tables = LAYOUT.pack(VALUES)
    assert [(t.shape, t.dtype) for t in tables] == [((2, 8), np.float32), ((2, 4), np.uint8)]
    assert tables[0].tolist() == [[1, 2, 7, 0, 1, 2, 3, 0.5], [3, 4, 2**24 - 1, 4, 5, 6, 7, 0.5]]
    assert tables[1].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    # Writing changes the given rows only.
    tables = LAYOUT.empty(4)
    LAYOUT.write(tables, slice(1, 3), VALUES)
    assert LAYOUT.read(tables, "obs").tolist() == [[0, 0], [1, 2], [3, 4], [0, 0]]


@pytest.mark.parametrize("name", VALUES)
def test_a_field_is_read_in_its_own_shape_and_dtype(name):
    value = LAYOUT.read(LAYOUT.pack(VALUES), name)
    assert value.dtype == LAYOUT.fields[name].dtype
    assert np.array_equal(value, VALUES[name])
