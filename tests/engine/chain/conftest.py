import pytest

from minding.engine import OnlineRLContext, Task


@pytest.fixture
def started():
    with Task().start(ctx=OnlineRLContext()) as fresh:
        yield fresh
