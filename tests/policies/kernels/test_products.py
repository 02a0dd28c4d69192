"""Products on several threads and by oneDNN: the same bits for any number of threads, and the right ones."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fakes import needs_kernels
from kernel_calls import LIBRARY, WITH_ONEDNN, check_layer, close, defaults_afterwards, draws, result

from minding.engine.process.floats import flush_denormals
from minding.policies import kernels
from minding.policies.kernels import library

pytestmark = [needs_kernels, pytest.mark.usefixtures("defaults_afterwards")]
__all__ = ["defaults_afterwards"]
LARGE = (
    # batch, inputs, outputs: 2^20 multiplications and more; edges of tiles (6 x 16) and blocks (256 terms, 384 rows).
    (256, 256, 256), (385, 257, 17), (2048, 64, 64), (1025, 4, 300), (300, 300, 5), (7, 400, 400), (400, 7, 400),
    (768, 96, 33), (1400, 31, 48),
)  # fmt: skip
SMALL = ((64, 64, 64), (5, 3, 7), (0, 300, 300))
RANDOM = np.random.default_rng(0).integers(90, 400, (8, 3)).tolist()


def layer(batch, inputs, outputs, activation="tanh"):
    """Results and all gradients of a layer; a third of the rows have none."""
    x, weight, bias, dout = draws(3, (batch, inputs), (outputs, inputs), (outputs,), (batch, outputs))
    weight /= np.float32(np.sqrt(inputs))
    dout[batch // 3 : 2 * batch // 3] = 0.0
    y = result(f"linear_{activation}", (x, weight, bias), (batch, outputs))
    dx = result(f"linear_{activation}_input_gradient", (dout, y, weight), (batch, inputs))
    dweight, dbias = result(f"linear_{activation}_parameter_gradient", (dout, y, x), (outputs, inputs), (outputs,))
    return y, dx, dweight, dbias


def products_of_onednn():
    return LIBRARY.onednn_products()


def bits(arrays):
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize("onednn", [False, WITH_ONEDNN])
@pytest.mark.parametrize("sizes", [*LARGE, *SMALL, *RANDOM], ids=str)
def test_the_number_of_threads_changes_no_bit(sizes, onednn):
    assert kernels.use_onednn(onednn) == onednn
    expected = bits(layer(*sizes))
    for count in (2, 3, 8):
        LIBRARY.use_threads(count)
        assert bits(layer(*sizes)) == expected, count


@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
@pytest.mark.parametrize("sizes", [(256, 256, 256), (128, 128, 128), (2048, 64, 64), (300, 100, 130), (256, 65, 67)])
def test_onednn_computes_large_layers_and_their_gradients(sizes, activation):
    if not kernels.use_onednn(True):
        pytest.skip("MindSpore without oneDNN")
    batch, inputs, outputs = sizes
    arrays = x, weight, bias, _ = draws(0, (batch, inputs), (outputs, inputs), (outputs,), (batch, outputs))
    before = products_of_onednn()
    y = result(f"linear_{activation}", (x, weight, bias), (batch, outputs))
    assert products_of_onednn() > before
    check_layer(arrays, activation)
    assert kernels.use_onednn(False) is False
    before = products_of_onednn()
    close(result(f"linear_{activation}", (x, weight, bias), (batch, outputs)), y, inputs)
    assert products_of_onednn() == before


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("onednn", [False, WITH_ONEDNN])
def test_what_is_not_finite_shows_in_large_products(onednn, bad):
    kernels.use_onednn(onednn)
    LIBRARY.use_threads(2)
    x, weight, bias, dout = draws(0, (256, 256), (256, 256), (256,), (256, 256))
    dout[:200] = 0.0
    weight[3, 11] = bad
    y = result("linear_none", (x, weight, bias), (256, 256))
    assert not np.isfinite(y[:, 3]).any()
    assert np.isfinite(np.delete(y, 3, axis=1)).all()
    dx = result("linear_none_input_gradient", (dout, dout, weight), (256, 256))
    assert np.isnan(dx[:200, 11]).all()
    assert np.isfinite(np.delete(dx, 11, axis=1)).all()
    x[7, 5] = bad
    dweight, _ = result("linear_none_parameter_gradient", (dout, dout, x), (256, 256), (256,))
    assert not np.isfinite(dweight[:, 5]).any()


def test_helpers_compute_in_their_callers_float_mode():
    LIBRARY.use_threads(2)
    ones, zero = np.full((256, 256), 1e-20, np.float32), np.zeros(256, np.float32)
    denormal = np.full((256, 256), 1e-22, np.float32)
    for _ in range(20):
        assert result("linear_none", (ones, denormal, zero), (256, 256)).all()
        assert not flush_denormals(lambda: result("linear_none", (ones, denormal, zero), (256, 256)))().any()


FORKED = """
import os, sys
from kernel_calls import LIBRARY
from test_products import bits, layer
expected = bits(layer(256, 256, 256))
LIBRARY.use_threads(2)
assert bits(layer(256, 256, 256)) == expected
child = os.fork()
assert bits(layer(256, 256, 256)) == expected
if child == 0:
    sys.exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 7)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own_and_both_end():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, "-c", FORKED], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


UNDER_SIGNALS = """
import signal, time
import numpy as np
from kernel_calls import draws, result
from minding.policies import kernels
from minding.policies.kernels import library

assert kernels.use_onednn(True)
signals = []
signal.signal(signal.SIGPROF, lambda number, frame: signals.append(number))
x, weight, bias, dout = draws(3, (256, 256), (256, 256), (256,), (256, 256))
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
while len(signals) < 150:
    y = result("linear_relu", (x, weight, bias), (256, 256))
    result("linear_relu_input_gradient", (dout, y, weight), (256, 256))
    result("linear_relu_parameter_gradient", (dout, y, x), (256, 256), (256,))
signal.setitimer(signal.ITIMER_PROF, 0.0)
np.testing.assert_allclose(y, np.maximum(x @ weight.T + bias, 0.0), atol=1e-3)
print("done")
"""


@pytest.mark.skipif(library.onednn() is None, reason="MindSpore without oneDNN")
@pytest.mark.parametrize("isa", ["AVX2", "ALL"])
def test_signals_do_not_disturb_onednn(isa):
    # In a process without a second stack for handlers, which pytest would give it.
    folder = Path(__file__).parents[1]
    paths = os.pathsep.join(map(str, (folder, folder.parents[1] / "src")))
    environment = {**os.environ, "PYTHONPATH": paths, "ONEDNN_MAX_CPU_ISA": isa, "PYTHONFAULTHANDLER": ""}
    run = subprocess.run([sys.executable, "-c", UNDER_SIGNALS], env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
