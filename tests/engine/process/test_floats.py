"""Denormal numbers are zero where policies compute, and nowhere else."""

import threading

import numpy as np
import pytest

from minding.engine.process.floats import flush_denormals, supported

pytestmark = pytest.mark.skipif(not supported(), reason="the mode cannot be set on this system")
DENORMAL = np.full(20, 6e-45, np.float32)


def keeps_denormals():
    return bool((DENORMAL * np.float32(0.9)).any())


@flush_denormals
def keeps_denormals_in_the_mode():
    return keeps_denormals()


def test_denormals_are_zero_and_numpy_is_unchanged():
    smallest_normal = np.full(20, np.finfo(np.float32).smallest_normal)
    sums = flush_denormals(lambda: (DENORMAL + np.float32(0), smallest_normal * np.float32(0.5)))()
    assert [np.count_nonzero(x) for x in sums] == [0, 0]
    assert flush_denormals(lambda: (keeps_denormals_in_the_mode(), keeps_denormals()))() == (False, False)
    flush_denormals(lambda: np.finfo(np.float32))()
    assert np.finfo(np.float32).smallest_subnormal == np.float32(1e-45)


def test_the_caller_has_its_own_mode_back_also_after_an_error():
    @flush_denormals
    def fail():
        raise KeyError("x")

    assert keeps_denormals()
    assert not keeps_denormals_in_the_mode()
    assert keeps_denormals()
    with pytest.raises(KeyError):
        fail()
    assert keeps_denormals()


def test_other_threads_keep_theirs():
    found = []

    @flush_denormals
    def outer():
        inside.set()
        done.wait()

    inside, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=outer)
    thread.start()
    inside.wait()
    found.append(keeps_denormals())
    done.set()
    thread.join()
    assert found == [True]
