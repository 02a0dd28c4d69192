"""Models that estimate rewards, for `middleware.reward_estimator`; none of them acts."""

from typing import TYPE_CHECKING

from minding.di_engine import from_di_engine

if not TYPE_CHECKING:
    # A type checker reports a missing name itself.

    def __getattr__(name):
        raise from_di_engine(__name__, name)
