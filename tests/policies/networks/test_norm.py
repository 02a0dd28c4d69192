"""Layer normalization of hidden layers, `policy.model.norm`: its second derivative, and where it is."""

import numpy as np
import pytest
from numeric import numeric_gradient

from minding.engine.errors import ConfigError
from minding.engine.process.runtime import ms, ops, to_device
from minding.policies import ALGORITHMS, get_policy_class
from minding.policies.networks.layers import MLP, LayerNorm
from minding.policies.networks.return_distribution import NoisyMLP

OWN_SIZES = {
    "dt": ".memory.",
    "fqf": ".embedding",
    "iqn": ".embedding",
    "qmix": "mixer.hidden.",
    "wqmix": "mixer.monotonic.hidden.",
}
"""Parts of networks that are MLPs of sizes of their own, which stay as their papers have them."""


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def layer(x, weight, bias):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * weight + bias


def test_without_kernels_there_is_a_second_derivative():
    norm = LayerNorm(4)
    norm.weight.asnumpy()[...] = [0.5, 1.0, 2.0, -1.0]

    def penalty(x):
        return ops.square(ms.grad(lambda x: (norm(x) ** 3).sum())(x)).sum()

    def slope(x):
        return numeric_gradient(lambda x: (layer(x, norm.weight.asnumpy(), 0.0) ** 3).sum(), x, 1e-5)

    x = drawn(2, 4)
    expected = numeric_gradient(lambda x: (slope(x) ** 2).sum(), x, 1e-4)
    found = ms.grad(penalty)(to_device(x.astype(np.float32))).asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_is_in_every_network_of_every_algorithm(algorithm, tiny_config):
    cfg = tiny_config(algorithm, **{"policy.model.norm": "layer"})
    root = get_policy_class(algorithm)(cfg, modes=("learn",)).root
    bodies = {
        path: cell for path, cell in root.cells_and_names() if isinstance(cell, (MLP, NoisyMLP)) and len(cell.layers)
    }
    own = {path for path in bodies if OWN_SIZES.get(algorithm, "no such part") in path}
    assert bool(own) == (algorithm in OWN_SIZES)
    assert len(bodies) > len(own)
    for path, cell in bodies.items():
        assert len(cell.norms) == (0 if path in own else len(cell.layers)), path


WITH_CRITICS = {
    "ddpg",
    "td3",
    "td3_bc",
    "sac",
    "redq",
    "crossq",
    "tqc",
    "sqil",
    "cql",
    "edac",
    "iql",
    "awac",
    "discrete_sac",
    "discrete_sqil",
    "maddpg",
    "matd3",
    "masac",
    "pdqn",
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_critics_are_normalized_if_asked_for(algorithm, tiny_config):
    if algorithm not in WITH_CRITICS:
        with pytest.raises(ConfigError, match=r"policy\.model\.norm.*'critics'"):
            tiny_config(algorithm, **{"policy.model.norm": "critics"})
        return
    policy = get_policy_class(algorithm)(tiny_config(algorithm, **{"policy.model.norm": "critics"}))
    bodies = {path: cell for path, cell in policy.root.cells_and_names() if isinstance(cell, MLP)}
    # P-DQN has actor and critic in one network, and so in its target.
    acting = ("net.", "target_net.", "target.actor.")
    acts = {path: path.startswith(acting) and ".critic." not in path for path in bodies}
    assert {*acts.values()} == {True, False}
    for path, cell in bodies.items():
        assert len(cell.norms) == (0 if acts[path] else len(cell.layers)), path
