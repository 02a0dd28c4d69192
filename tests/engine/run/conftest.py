import pytest
from matplotlib.figure import Figure


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved; the files stay empty."""
    found = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, format: found.append(figure))
    return found
