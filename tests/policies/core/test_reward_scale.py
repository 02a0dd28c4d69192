"""`policy.other.reward`: rewards that are learned from in another scale than the environment's."""

import copy
import dataclasses

import numpy as np
import pytest
import recordings
from fakes import VECTOR, Batches, rows_of, space_of, tiny_config
from float64_networks import params, value

from minding.engine.buffers import DatasetTables
from minding.engine.errors import ConfigError
from minding.policies import get_policy_class

pytestmark = pytest.mark.eager

STEPS = 12
RETURNS = [4.0, 6.5]
"""Of the two episodes that ended; the third one, of -50, was cut."""


def policy_of(kind, **settings):
    raw = {"policy.model.normalize_obs": False, "policy.learn.gamma": 0.0}
    cfg = tiny_config("td3", VECTOR, space_of(2), **{**raw, **settings})
    cfg.policy.other["reward"] = kind
    return get_policy_class("td3")(cfg)


def recorded():
    rng, rewards = np.random.default_rng(0), ([1, 0, 1, 2], [0.5, 7, -1], [-10] * 5)
    made = [
        recordings.log(
            len(reward), rng.uniform(-1, 1, (len(reward), 2)), obs=rng.standard_normal((len(reward) + 1, 4)),
            reward=reward, terminated=k == 0, truncated=k == 1,
        )
        for k, reward in enumerate(rewards)
    ]  # fmt: skip
    return recordings.dataset(made, VECTOR, {**space_of(2), "rescaled": False})


def critic_loss(policy, data, rewards):
    """Half the squared errors of both critics, float64; with a discount of 0 the rewards are the targets."""
    p, given = params(policy), (data.action, data.obs[""])
    return sum(0.5 * ((value(p, f"critics.{name}", *given) - rewards) ** 2).mean() for name in ("q1", "q2"))


NUMBERS = {"raw": (1.0, 0.0), "return_range": (1000.0 / (6.5 - 4.0), 0.0), "shift": (1.0, -1.0)}


@pytest.mark.parametrize("kind", NUMBERS)
def test_the_update_learns_from_rewards_in_their_scale(kind):
    data, policy = recorded(), policy_of(kind)
    assert data.returns().tolist() == RETURNS
    factor, offset = NUMBERS[kind]
    expected = critic_loss(policy, data, factor * data.reward.astype(np.float64) + offset)
    tables = DatasetTables(data, policy.learn_mode.fields)
    assert policy.learn_mode.forward(tables.batch(np.arange(STEPS)[None])).metrics["critic_loss"] == pytest.approx(
        expected, rel=1e-5
    )
    assert policy.reward_scale.numbers() == (factor, offset)


def test_the_numbers_are_saved_and_hold_for_other_data():
    policy = policy_of("return_range")
    policy.learn_mode.forward(DatasetTables(recorded(), policy.learn_mode.fields).batch(np.arange(8)[None]))
    state = copy.deepcopy(policy.state_dict())
    assert state["reward"] == {"factor": 400.0, "offset": 0.0}
    online = policy_of("return_range", **{"policy.learn.learning_rate": 1e-30})
    batches = Batches(online, 8)
    batch = batches(rows_of(batches.layout, 8, np.random.default_rng(1)), [range(8)])
    with pytest.raises(ConfigError, match=r"return_range takes its factor from recorded data, and this run learned"):
        online.learn_mode.forward(batch)
    online.load_state_dict(state)
    losses = [online.learn_mode.forward(batch).metrics["critic_loss"]]
    online.reward_scale.factor = 1.0
    losses.append(online.learn_mode.forward(batch).metrics["critic_loss"])
    assert losses[0] > 1000 * losses[1]
    online.load_state_dict(state)
    more = dataclasses.replace(recorded(), reward=np.arange(STEPS, dtype=np.float32))
    online.reward_scale.take(more.returns())
    assert online.reward_scale.numbers() == (400.0, 0.0)
