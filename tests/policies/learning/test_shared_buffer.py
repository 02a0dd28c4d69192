"""Several policies that learn from one buffer, each from its own fields."""

import numpy as np
import pytest
from fakes import rows_of, tiny_config

from benchmarks.fingerprint import fingerprint
from minding.engine.buffers import ReplayBuffer
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.lifecycle import load_middleware_state, middleware_state
from minding.engine.chain.pipeline import chain_nodes
from minding.engine.data.batch import Field, RowLayout
from minding.engine.errors import ShapeError
from minding.middleware import OffPolicyLearner, data_pusher
from minding.policies import get_policy_class

pytestmark = pytest.mark.eager

ROWS = 24
REPLAY = {"policy.learn.batch_size": 4, "policy.learn.update_per_collect": 3, "policy.learn.warmup": 1}


def policy_of(algorithm, **overrides):
    cfg = tiny_config(algorithm, **overrides)
    return get_policy_class(algorithm)(cfg, ("learn",))


def union(*policies):
    """Their fields, behind one that none of them reads: all columns stand elsewhere than in a policy's own rows."""
    fields = {"unread": Field((3,))}
    for policy in policies:
        fields.update(policy.learn_mode.fields)
    return fields


@pytest.mark.slow
def test_two_policies_learn_from_one_buffer_as_from_their_own():
    dqn, cloned = policy_of("dqn", **REPLAY), policy_of("bc")
    shared = ReplayBuffer(ROWS, union(dqn, cloned), seed=1)
    values = rows_of(RowLayout(shared.fields), ROWS, np.random.default_rng(0), {"action": 3})
    shared.push(values)
    batches = {"dqn": shared.sample(3, 4), "bc": shared.sample(2, 8)}
    for policy in (dqn, cloned):
        alone = policy_of(policy.name, **(REPLAY if policy is dqn else {}))
        own = ReplayBuffer(ROWS, alone.learn_mode.fields)
        own.push({name: values[name] for name in own.fields})
        batch = own.sample(1, 1)
        batch.index = batches[policy.name].index
        there, here = policy.learn_mode.forward(batches[policy.name]), alone.learn_mode.forward(batch)
        assert there == here
        assert fingerprint(policy.state_dict()) == fingerprint(alone.state_dict())


def test_rows_without_a_learned_field_are_refused_by_name():
    policy = policy_of("dqn", **REPLAY)
    fields = {name: field for name, field in policy.learn_mode.fields.items() if name != "terminated"}
    buffer = ReplayBuffer(ROWS, fields)
    buffer.push(rows_of(RowLayout(fields), ROWS, np.random.default_rng(0), {"action": 3}))
    with pytest.raises(ShapeError, match=r"no field 'terminated', which a policy learns from; they have obs, next_obs"):
        policy.learn_mode.forward(buffer.sample(1, 4))
    (problem,) = OffPolicyLearner(policy.config, policy.learn_mode, buffer).requirements()
    assert "the buffer has no field 'terminated', which the policy learns from; it has obs, " in problem
    assert "data_pusher writes what the buffer was made for: give it the fields of all its learners" in problem


def test_learners_with_different_discounts_are_refused():
    one, other = (policy_of("dqn", **REPLAY, **{"policy.learn.gamma": gamma}) for gamma in (0.9, 0.8))
    (problem,) = OffPolicyLearner(
        other.config, other.learn_mode, ReplayBuffer(ROWS, one.learn_mode.fields)
    ).requirements()
    assert "field 'discount' has the default 0.9 in the buffer, and the policy expects 0.8" in problem


@pytest.mark.slow
def test_a_shared_buffer_is_saved_once_and_restored_for_all():
    def parts(rows):
        dqn, other = policy_of("dqn", **REPLAY), policy_of("dqn", seed=1, **REPLAY)
        buffer = ReplayBuffer(ROWS, union(dqn), seed=3)
        if rows:
            buffer.push(rows_of(RowLayout(buffer.fields), rows, np.random.default_rng(0), {"action": 3}))
        chain = [
            data_pusher(dqn.config, buffer),
            *(OffPolicyLearner(p.config, p.learn_mode, buffer) for p in (dqn, other)),
        ]
        return chain, buffer, (dqn, other)

    chain, buffer, policies = parts(ROWS)
    for learner in chain[1:]:
        learner(OnlineRLContext())
    state = middleware_state(chain_nodes(chain))
    assert sum("ring" in path for path in fingerprint(state)) == len(fingerprint(buffer.state_dict()["ring"]))
    again, restored, others = parts(0)
    load_middleware_state(chain_nodes(again), state)
    for policy, other in zip(policies, others):
        other.load_state_dict(policy.state_dict())
    for one, two in zip(chain[1:], again[1:]):
        one(OnlineRLContext())
        two(OnlineRLContext())
    assert fingerprint(buffer.state_dict()) == fingerprint(restored.state_dict())
    assert all(fingerprint(p.state_dict()) == fingerprint(o.state_dict()) for p, o in zip(policies, others))
