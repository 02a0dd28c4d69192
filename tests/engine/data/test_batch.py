"""Row layouts: named arrays in few tables and back."""

import numpy as np
import pytest

from minding.engine.data.batch import Field, RowLayout
from minding.engine.errors import NonFiniteError, ShapeError

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


@pytest.mark.parametrize("name", VALUES)
def test_a_field_is_read_in_its_own_shape_and_dtype(name):
    value = LAYOUT.read(LAYOUT.pack(VALUES), name)
    assert value.dtype == LAYOUT.fields[name].dtype
    assert np.array_equal(value, VALUES[name])


def test_reading_takes_rows_of_any_index_shape():
    rows = LAYOUT.read(LAYOUT.pack(VALUES), "obs", np.array([[1, 0, 1]]))
    assert rows.tolist() == [[[3, 4], [1, 2], [3, 4]]]


def test_writing_changes_the_given_rows_only():
    tables = LAYOUT.empty(4)
    LAYOUT.write(tables, slice(1, 3), VALUES)
    assert LAYOUT.read(tables, "obs").tolist() == [[0, 0], [1, 2], [3, 4], [0, 0]]


def test_no_rows_are_a_batch_too():
    tables = LAYOUT.pack({name: value[:0] for name, value in VALUES.items()})
    assert [t.shape for t in tables] == [(0, 8), (0, 4)]


def test_a_missing_field_is_named():
    with pytest.raises(ShapeError, match="field 'action' of the rows is missing; got grid, image, obs: a policy"):
        LAYOUT.pack({name: value for name, value in VALUES.items() if name != "action"})


def test_a_wrong_shape_is_named():
    with pytest.raises(ShapeError, match=r"'grid': expected shape \(2, 2, 2\), got \(2, 4\)"):
        LAYOUT.pack({**VALUES, "grid": np.zeros((2, 4))})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_with_its_row(bad):
    obs = np.array([[1, 2], [3, bad]], np.float32)
    with pytest.raises(NonFiniteError, match=f"here: field 'obs' of row 1 is {bad}"):
        LAYOUT.check_finite(LAYOUT.pack({**VALUES, "obs": obs}), "here")


def test_infinities_of_both_signs_are_found():
    obs = np.array([[np.inf, -np.inf], [3, 4]], np.float32)
    with pytest.raises(NonFiniteError, match="field 'obs' of row 0 is inf"):
        LAYOUT.check_finite(LAYOUT.pack({**VALUES, "obs": obs}), "here")


def test_large_finite_numbers_pass_although_their_sum_overflows():
    LAYOUT.check_finite(LAYOUT.pack({**VALUES, "obs": np.full((2, 2), 3e38, np.float32)}), "here")
