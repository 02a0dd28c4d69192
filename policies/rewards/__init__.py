"""Models that estimate rewards, for `middleware.reward_estimator`; none of them acts."""

from typing import TYPE_CHECKING

from minding.other_names import missing_name

if not TYPE_CHECKING:
    # A type checker reports a missing name itself.

    def __getattr__(name):
        raise missing_name(__name__, name)
