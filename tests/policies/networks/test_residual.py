"""SimBa's residual blocks, `policy.model.block`: formula, gradients, forms, and where they are."""

import numpy as np
import pytest
from action_values import linear
from fakes import needs_kernels
from numeric import numeric_gradient

from minding.engine.process.runtime import ms, to_device
from minding.policies import ALGORITHMS, get_algorithm, get_policy_class
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.layers import MLP, Linear, ResidualMLP

SIZE, BLOCKS = 6, 2


def norm(p, name, x):
    x = x - x.mean(axis=1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def blocks(p, x):
    x = linear(p, "first", x)
    for k in range(BLOCKS):
        wide = np.maximum(linear(p, f"wide.{k}.layers.0", norm(p, f"norms.{k}", x)), 0.0)
        x = x + linear(p, f"narrow.{k}", wide)
    return norm(p, f"norms.{BLOCKS}", x)


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_kernels)])
def test_values_and_gradients_are_those_of_the_formula(fused):
    rng = np.random.default_rng(0)
    net, x = ResidualMLP(3, [SIZE] * BLOCKS, "relu", None, rng), rng.standard_normal((5, 3)).astype(np.float32)
    for p in net.get_parameters():
        p.asnumpy()[...] += 0.1 * rng.standard_normal(p.shape).astype(np.float32)
    p = {name: each.asnumpy().astype(np.float64) for name, each in net.parameters_and_names()}
    assert p["wide.0.layers.0.weight"].shape == (4 * SIZE, SIZE)
    if fused:
        fuse_layers(net)
    for found in (net(to_device(x)).asnumpy(), net.host()(x)):
        np.testing.assert_allclose(found, blocks(p, x), rtol=1e-4, atol=1e-5)
    weights = rng.standard_normal((5, SIZE))
    device = to_device(weights.astype(np.float32))
    dx, grads = ms.grad(lambda x: (net(x) * device).sum(), 0, net.trainable_params())(to_device(x))
    slope = numeric_gradient(lambda x: (blocks(p, x) * weights).sum(), x.astype(np.float64))
    np.testing.assert_allclose(dx.asnumpy(), slope, rtol=1e-3, atol=1e-4)
    for parameter, grad in zip(net.trainable_params(), grads, strict=True):
        name = next(name for name, each in net.parameters_and_names() if each is parameter)
        slope = numeric_gradient(lambda value, name=name: (blocks({**p, name: value}, x) * weights).sum(), p[name])
        np.testing.assert_allclose(grad.asnumpy(), slope, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_head_after_the_blocks_is_applied_to_their_result():
    rng = np.random.default_rng(0)
    net, head, x = (
        ResidualMLP(3, [4], "tanh", None, rng),
        Linear(4, 2, None, rng),
        to_device(np.ones((2, 3), np.float32)),
    )
    np.testing.assert_array_equal(net.into(head, x).asnumpy(), head(net(x)).asnumpy())


WITH_BLOCKS = [name for name in ALGORITHMS if "block" in get_algorithm(name).config_schema()["model"]]


@pytest.mark.parametrize("algorithm", [name for name in WITH_BLOCKS if name != "rainbow"])
def test_every_algorithm_that_has_the_key_has_blocks_only(algorithm, tiny_config):
    cfg = tiny_config(algorithm, **{"policy.model.block": "residual", "policy.model.hidden": "[8, 8]"})
    root = get_policy_class(algorithm)(cfg, modes=("learn",)).root
    bodies = [(path, cell) for path, cell in root.cells_and_names() if isinstance(cell, ResidualMLP)]
    assert bodies
    assert all(len(cell.wide) == 2 for _, cell in bodies)
    inside = tuple(f"{path}." for path, _ in bodies)
    plain = [path for path, cell in root.cells_and_names() if isinstance(cell, MLP) and not path.startswith(inside)]
    assert [path for path in plain if not path.endswith("embedding")] == []
