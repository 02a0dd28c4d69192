"""A checkpoint goes into the network that was trained, and into no other."""

import importlib
import pkgutil
import sys

import pytest

from minding.configs import compile_run
from minding.engine import Config
from minding.engine.errors import CheckpointError
from minding.engine.process.runtime import nn
from minding.policies import acting, networks, ops
from minding.policies.acting.numpy_layers import Composition
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.layers import Linear
from minding.policies.ppo import PPO
from minding.training import make_policy


class Deeper(ActorCritic):
    """One more layer before the value."""

    def __init__(self, spec, model, rng):
        super().__init__(spec, model, rng)
        self.more = Linear(model.hidden[-1], model.hidden[-1], 1.0, rng)


def networks_of_the_package():
    return [
        importlib.import_module(f"{networks.__name__}.{each.name}") for each in pkgutil.iter_modules(networks.__path__)
    ]


def is_cell(kind):
    return isinstance(kind, type) and issubclass(kind, nn.Cell) and kind.__module__.startswith("minding.")


def policy_of(kind, monkeypatch):
    cfg = compile_run(
        Config(env={"env_id": "CartPole-v1"}, policy={"type": "ppo", "model": {"hidden": [8]}}), ["seed=0"]
    )
    monkeypatch.setattr(PPO, "make_network", lambda self, rng: kind(self.spec, self.cfg.model, rng))
    return make_policy(cfg, modes=("eval",))


def test_a_network_of_the_script_is_known_by_its_file(monkeypatch):
    monkeypatch.setattr(Deeper, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "somewhere/my_script.py", raising=False)
    policy = policy_of(Deeper, monkeypatch)
    arrays, network = policy.acting_arrays()
    assert network == "my_script:Deeper"
    policy.load_acting_arrays(arrays, network)


def test_no_two_networks_of_the_package_have_one_name():
    """A class that moves is found by its name alone, so the name must belong to one class."""
    kinds = {kind for module in networks_of_the_package() for kind in vars(module).values() if is_cell(kind)}
    names = [kind.__qualname__ for kind in kinds]
    assert len(names) > 50
    assert [name for name in names if names.count(name) > 1] == []


def test_cells_and_numpy_forms_compute_with_the_same_functions():
    """A cell that names its composition before its base cell would compute in NumPy."""
    kinds = {kind for module in networks_of_the_package() for kind in vars(module).values() if is_cell(kind)}
    composed = [kind for kind in kinds if issubclass(kind, Composition)]
    assert len(composed) > 30
    assert [kind for kind in composed if kind.xp is not ops.arrays] == []
    own = {"np", "ms", "ops", "annotations"}
    names = [{n for n in vars(module) if n[:2] != "__"} - own for module in (acting.arrays, ops.arrays)]
    assert names[0] == names[1]


def test_surplus_parameters_are_refused_and_named(monkeypatch):
    source, goal = policy_of(Deeper, monkeypatch), policy_of(ActorCritic, monkeypatch)
    state = {**source.state_dict(), "network": goal.state_dict()["network"]}
    before = {name: p.asnumpy().copy() for name, p in goal.params.items()}
    message = "has 2 parameters that this network lacks, the first of them 'net.more.weight'"
    with pytest.raises(CheckpointError, match=message):
        goal.load_state_dict(state)
    assert all((before[name] == p.asnumpy()).all() for name, p in goal.params.items())
