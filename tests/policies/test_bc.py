"""BC: its losses by hand-computed numbers, one update against NumPy, what a cloned policy does."""

import math

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, multi_discrete, rows_of, space_of

from minding.engine.chain.context import OfflineRLContext
from minding.engine.process.runtime import ms
from minding.middleware import offline_data_fetcher, trainer
from minding.policies import get_policy_class
from minding.policies.bc import cloning_loss, squared_error_loss

CONTRACT = {
    "bc": (dict_of(a=VECTOR, b=discrete(2)), discrete(3), {}),
    "bc, box": (VECTOR, space_of(2, 2), {"policy.learn.loss": "log_likelihood", "policy.learn.grad_norm": 0.5}),
    "bc, multi_discrete": (VECTOR, multi_discrete(3, 2), {}),
}
RESUMES = {
    "BC, observations normalized, data mapped": (
        "CartPole-v1",
        ("policy.model.normalize_obs=true", "policy.other.data_memory=mapped"),
    ),
}
BATCH = 16


def numbers(tensor):
    return float(tensor[0].asnumpy() if isinstance(tensor, tuple) else tensor.asnumpy())


def test_the_likelihood_of_recorded_actions_by_hand():
    log_prob = ms.Tensor(np.log(np.float32([0.5, 0.25])))
    assert numbers(cloning_loss(log_prob, {})) == pytest.approx(1.5 * math.log(2.0))


def test_the_squared_error_by_hand():
    mean, action = ms.Tensor(np.float32([[1, 2], [0, 0]])), ms.Tensor(np.float32([[0, 4], [1, 0]]))
    assert numbers(squared_error_loss(mean, action, {})) == 3.0


@pytest.fixture(scope="module")
def build(tiny_config):
    def make(action, loss="squared_error"):
        settings = {"policy.learn.learning_rate": 0.01, "policy.learn.anneal_lr": False, "policy.learn.loss": loss}
        policy = get_policy_class("bc")(tiny_config("bc", VECTOR, action, **settings))
        return policy, Batches(policy, BATCH)

    return make


def expected_loss(policy, values, loss):
    outputs = [np.asarray(x, np.float64) for x in policy.actors["eval"].outputs(values["obs"])]
    if policy.spec["action"]["kind"] == "discrete":
        logits = outputs[0]
        log_prob = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -log_prob[np.arange(BATCH), values["action"].astype(int)].mean()
    mean, log_std = outputs
    if loss == "squared_error":
        return ((mean - values["action"]) ** 2).sum(axis=1).mean()
    z = (values["action"] - mean) / np.exp(log_std)
    return -(-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1).mean()


@pytest.mark.parametrize(
    ("action", "loss"),
    [(discrete(3), "squared_error"), (space_of(2), "squared_error"), (space_of(2), "log_likelihood")],
)
def test_the_update_computes_the_loss_of_its_formula_and_lowers_it(build, action, loss):
    policy, batches = build(action, loss)
    values = rows_of(batches.layout, BATCH, np.random.default_rng(0), {"action": 3})
    batch = batches(values, np.arange(BATCH)[None])
    losses = []
    for _ in range(30):
        expected = expected_loss(policy, values, loss)
        losses.append(policy.learn_mode.forward(batch).metrics["loss"])
        assert losses[-1] == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < 0.9 * losses[0]


def test_a_cloned_policy_does_what_was_recorded(build):
    policy, batches = build(discrete(3))
    values = rows_of(batches.layout, BATCH, np.random.default_rng(1), {"action": 3})
    batch = batches(values, np.arange(BATCH)[None])
    for _ in range(300):
        policy.learn_mode.forward(batch)
    assert policy.eval_mode.forward(values["obs"]).tolist() == values["action"].astype(int).tolist()


class Rows:
    """Recorded data in device tables."""

    digest = "a"

    def __init__(self, batches, values):
        self.batches, self.values = batches, values

    def __len__(self):
        return len(self.values["action"])

    def batch(self, index):
        return self.batches(self.values, index)


def test_the_weights_are_equal_to_the_bit_however_many_steps_a_call_makes(tiny_config):
    weights = []
    for steps_per_call in (1, 7):
        settings = {"policy.learn.batch_size": 8, "policy.learn.steps_per_call": steps_per_call}
        cfg = tiny_config("bc", VECTOR, space_of(2), **settings)
        # The learning rate falls to 0 within the run.
        cfg.run.max_train_iter = 16
        policy = get_policy_class("bc")(cfg)
        batches = Batches(policy, 30)
        values = rows_of(batches.layout, 30, np.random.default_rng(2))
        fetch = offline_data_fetcher(cfg, Rows(batches, values))
        learn, ctx, rates = trainer(cfg, policy.learn_mode), OfflineRLContext(), []
        while ctx.train_iter < 16:
            fetch(ctx)
            learn(ctx)
            rates += [ctx.train_output["learning_rate"]] * int(ctx.train_output["grad_steps"])
        assert ctx.train_iter == 16
        assert np.mean(rates) == pytest.approx(1e-3 * 17 / 32)
        weights.append({name: p.asnumpy().tobytes() for name, p in policy.params.items()})
    assert weights[0] == weights[1]
