"""Action masks: every way to act is legal; what is learned of masks, the files of the algorithms test."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, draw_masks, mask_of, multi_discrete

from minding.engine.data import obs_trees
from minding.policies import get_policy_class

pytestmark = pytest.mark.eager

ACTIONS = 5
OF_ACTION_VALUES = ("dqn", "qrdqn", "c51", "iqn", "fqf", "rainbow")


def observations(mask, rng):
    return obs_trees.from_nested(
        {"observation": rng.standard_normal((len(mask), 4)).astype(np.float32), "action_mask": mask}
    )


@pytest.fixture(scope="module")
def build(tiny_config):
    def make(algorithm, *counts, **overrides):
        action = discrete(counts[0]) if len(counts) == 1 else multi_discrete(*counts)
        space = dict_of(observation=VECTOR, action_mask=mask_of(*counts))
        return get_policy_class(algorithm)(tiny_config(algorithm, space, action, **overrides))

    return make


@pytest.mark.parametrize("backend", ["numpy", pytest.param("graph", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("algorithm", "counts"),
    [
        *(("ppo", (5,)), ("ppo", (3, 2)), ("a3c", (5,)), ("bc", (3, 2)), ("discrete_sac", (5,))),
        *((algorithm, (5,)) for algorithm in OF_ACTION_VALUES),
    ],
)
def test_every_way_to_act_is_legal(build, algorithm, counts, backend):
    policy = build(algorithm, *counts, **{"policy.collect.backend": backend})
    rng = np.random.default_rng(0)
    mask = draw_masks(counts, 500, rng)
    obs = observations(mask, rng)
    ways = [policy.collect_mode.forward(obs)["action"], policy.collect_mode.forward(obs, random=True)["action"]]
    ways += [policy.eval_mode.forward(obs), policy.eval_mode.forward(np.asarray(obs.observation), action_mask=mask)]
    if algorithm in OF_ACTION_VALUES:
        ways.append(policy.collect_mode.forward(obs, eps=0.7)["action"])
    starts = np.cumsum([0, *counts[:-1]])
    for action in ways:
        assert np.take_along_axis(mask, action.reshape(500, -1) + starts, axis=1).all()
    assert np.array_equal(ways[2], ways[3])
    # Not always the first legal one, and with `random` all of them.
    assert len(np.unique(ways[1].reshape(500, -1)[:, 0])) == counts[0]


def test_the_normalizer_sees_the_observation_beside_the_mask():
    space, normalized = dict_of(observation=VECTOR, action_mask=mask_of(ACTIONS)), {"policy.model.normalize_obs": True}
    bench = kit.Bench(kit.make_policy("ppo", space, discrete(ACTIONS), **normalized), 16)
    rows = bench.rows(action=2)
    bench.learn(rows)
    ((_, normalizer),) = bench.policy.normalizers.values()
    np.testing.assert_allclose(normalizer.moments.mean, rows["obs.observation"].mean(axis=0), rtol=1e-6)
