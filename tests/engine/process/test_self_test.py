"""The check of an installation by a compiled gradient and by denormal numbers."""

from fakes import refuses

from minding.engine.errors import SetupError
from minding.engine.process import floats, self_test


def test_the_self_test_takes_a_gradient_and_reports_what_it_found():
    found = self_test.self_test()
    assert found["mindspore"].startswith("2.10")
    assert found["device"] == "CPU"
    assert found["compiled gradient"].startswith("ok in ")
    assert found["denormal numbers"] == "zero"


def sum_of_cubes(x):
    return (x * x * x).sum()


def test_the_self_test_notices_a_wrong_gradient_and_denormal_numbers_that_are_kept(monkeypatch):
    with monkeypatch.context() as change:
        change.setattr(self_test, "_sum_of_squares", sum_of_cubes)
        refuses(SetupError, ("[3.0, 12.0, 27.0], expected [2, 4, 6]", self_test.self_test))
    monkeypatch.setattr(floats, "flush_denormals", lambda function: function)
    refuses(SetupError, ("denormal numbers are kept", self_test.self_test))
