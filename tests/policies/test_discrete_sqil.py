"""Discrete SQIL: discrete SAC by another name; `test_sqil.py` has the tests of its chain."""

from fakes import VECTOR, discrete

from minding.policies import get_policy_class
from minding.policies.discrete_sac import DiscreteSAC

CONTRACT = {"discrete_sqil": (VECTOR, discrete(3), {})}
RESUMES = {}
"""Discrete SAC's has all that it keeps, and SQIL's the data."""


def test_it_is_discrete_sac_under_its_own_name(tiny_config):
    policy = get_policy_class("discrete_sqil")(tiny_config("discrete_sqil", VECTOR, discrete(3)))
    assert type(policy) is DiscreteSAC
    assert policy.name == "discrete_sqil"
    assert "hindsight" not in policy.cfg.other
