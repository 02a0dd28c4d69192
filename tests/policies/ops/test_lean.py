import numpy as np
import pytest

from minding.engine.process.runtime import ms
from minding.policies.ops import primitives

X = np.array([[1.0, 5.0], [3.0, -2.0]], np.float32)


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (primitives.entry, (X, np.array(1, np.int32)), [3.0, -2.0]),
        (primitives.mean, (X[0],), 3.0),
        (primitives.largest, (X,), [5.0, 3.0]),
        (lambda x: primitives.largest(x, keepdims=True), (X,), [[5.0], [3.0]]),
    ],
)
def test_lean_forms_compute_what_their_names_say(function, inputs, expected):
    assert function(*[ms.Tensor(x) for x in inputs]).asnumpy().tolist() == expected


def test_the_mean_of_a_scalar_is_itself_and_scalars_stack():
    two, three = ms.Tensor(np.float32(2)), ms.Tensor(np.float32(3))
    assert float(primitives.mean(two)) == 2.0
    assert primitives.stacked((two, three)).asnumpy().tolist() == [2.0, 3.0]
