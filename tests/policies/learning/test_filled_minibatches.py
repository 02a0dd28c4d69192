"""Rows of resets and of absent agents: a step on what a trainer fills up is the step on the other rows alone."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, mask_of, rows_of, space_of, tiny_config
from float64_networks import gradients

from minding.engine.chain.context import OnlineRLContext
from minding.engine.data.batch import IndexedBatch
from minding.middleware import trainer
from minding.policies import get_policy_class

pytestmark = pytest.mark.eager

ROWS, DEAD = 7, [0, 3, 5]
NORMALISED = {"policy.learn.normalize_advantage": True, "policy.learn.optimizer": "adam"}
CASES = {
    "ppo": ("ppo", discrete(3), {}),
    "ppo, box": ("ppo", space_of(2), {}),
    "a2c": ("a2c", discrete(3), NORMALISED),
    "mappo": ("mappo", discrete(3), {}),
    "pg, standardized": ("pg", discrete(3), {}),
    "pg, mean": ("pg", discrete(3), {"policy.learn.baseline": "mean"}),
    "bc": ("bc", space_of(2), {"policy.learn.loss": "squared_error"}),
}


def build(algorithm, action, settings):
    if algorithm == "mappo":
        cfg = tiny_config(algorithm, dict_of(action_mask=mask_of(3), observation=space_of(4)), action, **settings)
        cfg.env.spec.update(num_agents=2, agents={"names": ["a", "b"], "state": space_of(5), "team_reward": False})
    else:
        cfg = tiny_config(algorithm, VECTOR, action, **settings)
    return cfg, get_policy_class(algorithm)(cfg, modes=("learn",))


@pytest.mark.parametrize("case", CASES)
def test_dead_rows_change_no_step(case):
    cfg, policy = build(*CASES[case])
    middleware = trainer(cfg, policy.learn_mode)
    rows = rows_of(middleware._store._layout, ROWS, np.random.default_rng(0), {"action": 3, "central.agent_id": 2})
    if "log_prob" in rows:
        rows["log_prob"] = -np.abs(rows["log_prob"])
    if "central.alive" in rows:
        rows["central.alive"] = np.float32(np.arange(ROWS) != ROWS - 1)
    valid, start = np.ones(ROWS, bool), copy.deepcopy(policy.state_dict())
    valid[DEAD] = False
    ctx = OnlineRLContext(train_data={**rows, "valid": valid})
    middleware(ctx)
    found, slopes = ctx.train_output, [x.copy() for x in gradients(policy, "net")]
    _, policy = build(*CASES[case])
    policy.load_state_dict(start)
    tables = trainer(cfg, policy.learn_mode)._store.put(rows)
    index = np.flatnonzero(valid)[None].astype(np.int32)
    expected = policy.learn_mode.forward(IndexedBatch(tables.layout, tables, index)).metrics
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
    for one, other in zip(slopes, gradients(policy, "net"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert max(np.abs(x).max() for x in slopes) > 1e-3


@pytest.mark.parametrize("case", ["ppo", "mappo"])
def test_a_rollout_without_dead_rows_needs_no_second_graph(case):
    learned = []
    for dead in ([], DEAD):
        cfg, policy = build(*CASES[case])
        middleware = trainer(cfg, policy.learn_mode)
        rows = rows_of(middleware._store._layout, ROWS, np.random.default_rng(0), {"action": 3, "central.agent_id": 2})
        start = copy.deepcopy(policy.state_dict())
        middleware(OnlineRLContext(train_data={**rows, "valid": ~np.isin(np.arange(ROWS), dead)}))
        policy.load_state_dict(start)
        middleware(OnlineRLContext(train_data={**rows, "valid": np.ones(ROWS, bool)}))
        learned.append([x.copy() for x in gradients(policy, "net")])
        assert policy._update.signatures == 1
    for one, other in zip(*learned, strict=True):
        np.testing.assert_array_equal(one, other)
