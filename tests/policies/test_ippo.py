"""IPPO: PPO by its name for teams. What is said here of names holds for all algorithms that are another one's."""

import kit
import pytest
from fakes import dict_of, discrete, mask_of, space_of

from minding.policies.discrete_sac import DiscreteSAC
from minding.policies.ppo import PPO

pytestmark = pytest.mark.eager

SEEN = dict_of(action_mask=mask_of(3), observation=space_of(4))
CONTRACT = {"ippo": (SEEN, discrete(3), {})}
RESUMES = {}
"""PPO's with agents who leave and MAPPO's have all that it keeps."""
ALTERNATIVES = ("policy.model.memory=gru", "policy.learn.kl_weight=0.5")


@pytest.mark.parametrize(
    ("name", "kind", "lacks"),
    [("ippo", PPO, "rnd"), ("gail", PPO, "none"), ("discrete_sqil", DiscreteSAC, "hindsight")],
)
def test_it_is_another_algorithm_under_its_own_name(name, kind, lacks):
    made = kit.make_policy(name, SEEN, discrete(3))
    assert type(made) is kind
    assert made.name == made.actors["collect"].name == name
    assert lacks not in made.cfg.other
