"""IPPO: PPO by its name for teams. What is said here of names holds for all algorithms that are another one's."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, mask_of, space_of

from minding.engine.data.agent_axis import with_identity
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


@pytest.mark.parametrize(("name", "space"), [("ippo", SEEN), ("gail", VECTOR)])
def test_an_update_is_that_of_ppo_on_the_same_rows(name, space):
    found, learn = [], {"value_clip": True, "entropy_weight": 0.01}
    for each in (name, "ppo"):
        given = with_identity(space, 3) if (each, name) == ("ppo", "ippo") else space
        made = kit.make_policy(each, given, discrete(3), learn, **kit.RAW)
        bench = kit.Bench(made, 32)
        bench.learn(bench.rows(action=3), np.arange(32).reshape(2, 16))
        found.append(bench.params)
    kit.check_bits(*found)
