"""What policies that learn from stored actions need: V(s) as a network of its own, the likelihood of such an action."""

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, mask_of, rows_of, space_of, tiny_config
from float64_networks import finite_differences, normal

from minding.engine import Config
from minding.engine.data.batch import Field
from minding.engine.process.runtime import ms, nn, to_device
from minding.policies.bc import BC
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import equalize
from minding.policies.networks.actor_critic import CriticEnsemble, PolicyNetwork, StateValue
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops.policy_gradient import row_mean

MODEL = Config(
    hidden=[5], activation="relu", norm="none", normalize_obs=False, encoder="", encoder_dim=4, cnn=[], cnn_dim=8,
    log_std=-0.5,
)  # fmt: skip
BATCH = 6


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def doubles(net):
    return {f"net.{name}": p.asnumpy().astype(np.float64) for name, p in net.parameters_and_names() if p.requires_grad}


class Slope(nn.Cell):
    """A mean over rows and its gradient for all parameters of a network."""

    def __init__(self, net, function):
        super().__init__()
        self.net, self.function = net, function
        self.gradient = ms.value_and_grad(self.loss, None, ms.ParameterTuple(net.trainable_params()), has_aux=True)

    def loss(self, *inputs):
        rows = self.function(*inputs)
        return rows.mean(), rows

    @ms.jit
    def construct(self, *inputs):
        (_, rows), grads = self.gradient(*inputs)
        return rows, *grads


def check(slope, inputs, reference):
    """Rows and gradient against a function of float64 parameters."""
    rows, *grads = slope(*map(to_device, inputs))
    p = doubles(slope.net)
    np.testing.assert_allclose(rows.asnumpy(), reference(p), rtol=1e-5, atol=1e-5)
    expected = finite_differences(lambda p: reference(p).mean(), p, "net")
    for name, found, wanted in zip(p, grads, expected, strict=True):
        np.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max(), err_msg=name)


def hidden(p, part, x):
    return np.maximum(x @ p[f"{part}.layers.0.weight"].T + p[f"{part}.layers.0.bias"], 0.0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_state_value_and_its_gradient_are_those_of_float64(fused):
    net = StateValue({"observation": VECTOR}, MODEL, np.random.default_rng(0))
    if fused:
        fuse_layers(net)
    obs = drawn(BATCH, 4)

    def reference(p):
        return (hidden(p, "net.torso", obs) @ p["net.value.weight"].T + p["net.value.bias"])[:, 0]

    def value(obs):
        return net((obs,))

    check(Slope(net, value), [obs], reference)


def test_a_state_value_reads_every_leaf_but_the_mask():
    space = dict_of(a=VECTOR, b=discrete(3), action_mask=mask_of(2))
    net = StateValue({"observation": space}, MODEL, np.random.default_rng(0))
    leaves = [drawn(2, 4), np.ones((2, 2), bool), np.array([0, 2], np.int32)]
    first = net(tuple(map(to_device, leaves))).asnumpy()
    assert first.shape == (2,)
    for k, (change, same) in enumerate([(leaves[0] + 1, False), (~leaves[1], True), (2 - leaves[2], False)]):
        changed = [*leaves[:k], change, *leaves[k + 1 :]]
        assert np.array_equal(net(tuple(map(to_device, changed))).asnumpy(), first) == same


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
@pytest.mark.parametrize("fused", [False, True])
def test_the_normal_policy_tells_how_likely_a_stored_action_is(fused, shape):
    net = PolicyNetwork({"observation": VECTOR, "action": space_of(*shape)}, MODEL, np.random.default_rng(0))
    if fused:
        fuse_layers(net)
        fuse_likelihood(net.head)
    net.head.log_std.asnumpy()[...] = np.linspace(-3.0, 0.5, np.prod(shape))
    obs = drawn(BATCH, 4)
    # What another policy did: inside the limits, on them, where a tanh has no density, and far from what this one does.
    action = np.clip(drawn(BATCH, *shape, seed=1), -1, 1)
    action[0], action[1], action[2] = 1.0, -1.0, 0.0
    flat = action.reshape(BATCH, -1).astype(np.float64)

    def reference(p):
        mean = hidden(p, "net.torso", obs) @ p["net.head.linear.weight"].T + p["net.head.linear.bias"]
        return normal(mean, p["net.head.log_std"], flat)[0]

    def log_prob(obs, action):
        return net.head.log_prob_entropy(net((obs,)), action)[0]

    check(Slope(net, log_prob), [obs, action], reference)
    told = net.head.distribution.log_prob(net.host()([obs]), action)
    np.testing.assert_allclose(told, reference(doubles(net)), rtol=1e-5, atol=1e-5)


class ValueCell(GradientStep):
    """Actor, critics and a state value in groups of their own; only the value learns: V(s) to the reward."""

    metrics = ("value_loss",)

    def __init__(self, net, spec, model, learn, rng):
        super().__init__()
        self.net, self.critics, self.targets = net, CriticEnsemble(spec, model, rng), CriticEnsemble(spec, model, rng)
        self.value = StateValue(spec, model, rng)
        equalize(self.critics, self.targets)
        parts = {"actor": net, "critics": self.critics, "value": self.value}
        self.optim = Optimizer(**{name: Group.of(part, learn) for name, part in parts.items()})
        self.gradient = self.optim.gradient(self.loss, "value")

    def loss(self, batch):
        loss = row_mean((self.value(batch["obs"]) - batch["reward"]) ** 2, batch)
        return loss, {"value_loss": loss}

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        self.optim({"value": grads}, batch, metrics["value_loss"])
        return metrics


class ValueLearner(BC):
    def make_root(self, net, rng):
        return ValueCell(net, self.spec, self.cfg.model, self.cfg.learn, rng)

    host_fields = ("action",)

    @property
    def row_fields(self):
        return {**super().row_fields, "reward": Field()}


def test_a_state_value_is_a_group_of_an_optimizer_and_learns_alone():
    settings = {"policy.model.normalize_obs": True, "policy.learn.anneal_lr": False}
    policy = ValueLearner(tiny_config("bc", VECTOR, space_of(2), **settings))
    paths = {id(p): name for name, p in policy.params.items() if not name.startswith("optim.")}
    groups = {name: {paths[id(p)] for p in group.params} for name, group in policy.root.optim.groups.items()}
    for name, part in (("actor", "net"), ("critics", "critics"), ("value", "value")):
        assert groups[name] == {
            path for path in paths.values() if path.startswith(f"{part}.") and "normalizer" not in path
        }
    batches = Batches(policy, 16)
    batch = batches(rows_of(batches.layout, 16, np.random.default_rng(0)), [range(16)] * 4)
    before = policy.state_dict()["params"]
    losses = [policy.learn_mode.forward(batch).metrics["value_loss"] for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]
    moved = {name for name, p in policy.params.items() if not np.array_equal(p.asnumpy(), before[name])}
    # Besides it only the moments of observations, and the state of its group.
    learned = {name for name in moved if "normalizer" not in name and not name.startswith("optim.steps.2.")}
    assert learned == groups["value"]
