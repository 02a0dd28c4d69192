"""Chains are found by the names of their files."""

import pytest

from minding.configs.chains import CHAINS, Chain, get_chain
from minding.engine.chain.context import OfflineRLContext, OnlineRLContext
from minding.engine.errors import ConfigError
from minding.policies import ALGORITHMS


def test_each_file_is_a_chain_and_says_what_it_runs_on():
    assert (
        *("episode_replay", "hindsight", "monte_carlo", "off_policy", "offline", "on_policy"),
        *("sequence_replay", "single_step", "trajectory"),
    ) == CHAINS
    for name in CHAINS:
        chain = get_chain(name)
        assert isinstance(chain, Chain)
        assert chain.context is (OfflineRLContext if name == "offline" else OnlineRLContext)


def test_each_algorithm_names_a_chain():
    assert {each.chain for each in ALGORITHMS.values()} <= set(CHAINS)


def test_an_unknown_chain_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="chain='on_polcy' is unknown; did you mean 'on_policy'"):
        get_chain("on_polcy")
