"""AlphaZero: its loss by hand-computed numbers and against float64 NumPy, both networks, what search asks of it."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, draw_masks, mask_of, space_of
from numeric import t

from minding.engine.process.runtime import ms
from minding.policies.alphazero import cross_entropy
from minding.policies.core.acting_network import acting_network

pytestmark = pytest.mark.eager

PLANES = dict_of(action_mask=mask_of(3), observation=space_of(2, 4, 3))
RESIDUAL = {"policy.model.net": "residual", "policy.model.channels": 4, "policy.model.blocks": 2}
CONTRACT = {"alphazero": (VECTOR, discrete(3), {}), "alphazero, residual": (space_of(2, 4, 3), discrete(3), RESIDUAL)}
SMALL = (
    "policy.collect.simulations=3",
    "policy.eval.simulations=3",
    "policy.eval.n_episode=4",
    "policy.learn.warmup=24",
    "policy.collect.sample_plies=3",
)
RESUMES = {
    "AlphaZero, Gumbel and convolutions": (
        "minding/ConnectFour-v0",
        (*SMALL, "policy.collect.search=gumbel", *(f"{key}={value}" for key, value in RESIDUAL.items())),
    )
}
ALTERNATIVES = ("policy.model.net=residual", "policy.collect.search=gumbel")
BATCH = 16


def test_the_slope_is_the_difference_of_the_policies():
    logits = np.array([[0.3, -1.2, 0.5], [2.0, 0.1, -1e30]])
    policy = np.array([[0.2, 0.7, 0.1], [0.9, 0.1, 0.0]])
    slope = ms.grad(lambda x: cross_entropy(x, t(*policy)).sum())(t(*logits)).asnumpy()
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(slope, softmax - policy, atol=1e-6)


LEARN = {"learning_rate": 0.01, "weight_decay": 0.1, "value_weight": 0.5}
KINDS = {"mlp": {}, "residual": RESIDUAL}
built, bench = kit.benches("alphazero", PLANES, discrete(3), BATCH, KINDS, learn=LEARN)
each = kit.each_of(KINDS)


def rows_of(bench):
    values, rng = bench.rows(), np.random.default_rng(0)
    mask = draw_masks((3,), BATCH, rng)
    policy = rng.random((BATCH, 3)) * mask
    values.update({"obs.action_mask": mask, "policy": (policy / policy.sum(axis=1, keepdims=True)).astype(np.float32)})
    return {**values, "outcome": rng.integers(-1, 2, BATCH).astype(np.float32)}


def np_conv(x, weight, bias):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((len(x), len(weight), *x.shape[2:]))
    for r in range(x.shape[2]):
        for c in range(x.shape[3]):
            out[:, :, r, c] = np.einsum("bcij,fcij->bf", padded[:, :, r : r + 3, c : c + 3], weight) + bias
    return out


def np_network(policy, values):
    p = {name.removeprefix("net."): x.astype(np.float64) for name, x in policy.state_dict()["params"].items()}
    x = values["obs.observation"].astype(np.float64)

    def layer(name, x):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def conv(name, x):
        return np_conv(x, p[f"{name}.weight"], p[f"{name}.bias"])

    residual = policy.cfg.model.net == "residual"
    if residual:
        x = np.maximum(conv("encoder.stem", x), 0.0)
        for k in range(2):
            x = np.maximum(x + conv(f"encoder.second.{k}", np.maximum(conv(f"encoder.first.{k}", x), 0.0)), 0.0)
    x = x.reshape(BATCH, -1)
    hidden = x
    for k in range(len(policy.cfg.model.hidden)):
        hidden = np.maximum(layer(f"{'critic' if residual else 'torso'}.layers.{k}", hidden), 0.0)
    logits = np.where(values["obs.action_mask"], layer("policy", x if residual else hidden), -np.inf)
    return logits, np.tanh(layer("value", hidden))[:, 0]


def np_losses(policy, values):
    logits, v = np_network(policy, values)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    cross = -(values["policy"] * np.where(values["policy"] > 0, log_p, 0.0)).sum(axis=1).mean()
    of_value = ((v - values["outcome"]) ** 2).mean()
    return {"policy_loss": cross, "value_loss": of_value, "loss": cross + 0.5 * of_value}


def test_the_update_lowers_the_loss_of_its_formula_with_decay(each):
    values, before, losses = rows_of(each), each.params["net.policy.weight"], []
    each.learn(values)
    # The first step of Adam has the size of the rate wherever there is a gradient; the decay is added to it.
    step = np.abs(each.params["net.policy.weight"] - before + 0.01 * 0.1 * before)
    np.testing.assert_allclose(step, np.where(step < 0.005, 0.0, 0.01), atol=1e-5)
    assert (step > 0.005).mean() > 0.5
    for _ in range(20):
        expected = np_losses(each.policy, values)
        found = each.learn(values).metrics
        kit.check_metrics(found, expected, rel=1e-4)
        losses.append(found["loss"])
    assert losses[-1] < 0.8 * losses[0]


def test_search_gets_logits_and_values_in_numpy_and_from_a_graph(each):
    policy, values = each.policy, rows_of(each)
    obs = {"observation": values["obs.observation"], "action_mask": values["obs.action_mask"]}
    logits, v = np_network(policy, values)
    assert policy.acting.in_numpy
    found = policy.eval_mode.predict(obs)
    legal = np.isfinite(logits)
    np.testing.assert_allclose(found["logits"][legal], logits[legal], atol=1e-5)
    assert (found["logits"][~legal] < -1e20).all()
    np.testing.assert_allclose(found["value"], v, atol=1e-5)
    # More positions than a block of the NumPy form has.
    many = {name: np.concatenate([x] * 3) for name, x in obs.items()}
    graph = acting_network(policy.net, "graph", "act")([many["action_mask"], many["observation"]])
    for here, there in zip(policy.collect_mode.predict(many).values(), graph):
        np.testing.assert_allclose(here, there, atol=1e-5)
    np.testing.assert_array_equal(policy.eval_mode.forward(obs), logits.argmax(axis=1))
