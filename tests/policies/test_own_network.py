"""A checkpoint goes into the network that was trained, and into no other."""

import re

import pytest

from minding.configs import compile_run
from minding.engine import Config
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.process.runtime import nn
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.layers import Linear
from minding.policies.ppo import PPO
from minding.training import make_policy


class Deeper(ActorCritic):
    """One more layer before the value."""

    def __init__(self, spec, model, rng):
        super().__init__(spec, model, rng)
        self.more = Linear(model.hidden[-1], model.hidden[-1], 1.0, rng)


def policy_of(kind, monkeypatch):
    cfg = compile_run(
        Config(env={"env_id": "CartPole-v1"}, policy={"type": "ppo", "model": {"hidden": [8]}}), ["seed=0"]
    )
    monkeypatch.setattr(PPO, "make_network", lambda self, rng: kind(self.spec, self.cfg.model, rng))
    return make_policy(cfg, modes=("eval",))


def test_a_checkpoint_of_another_class_of_network_is_refused(monkeypatch):
    trained, other = policy_of(Deeper, monkeypatch), policy_of(ActorCritic, monkeypatch)
    message = r"the checkpoint holds a network of class .*:Deeper, but this one is minding\..*:ActorCritic"
    with pytest.raises(CheckpointError, match=message):
        other.load_state_dict(trained.state_dict())
    trained.load_state_dict(trained.state_dict())


@pytest.mark.parametrize(
    ("source", "goal", "message"),
    [
        (Deeper, ActorCritic, "has 2 parameters that this network lacks, the first of them 'net.more.weight'"),
        (ActorCritic, Deeper, "the checkpoint has no parameter 'net.more.weight'"),
    ],
)
def test_surplus_and_missing_parameters_are_refused_and_named(source, goal, message, monkeypatch):
    source, goal = policy_of(source, monkeypatch), policy_of(goal, monkeypatch)
    state = {**source.state_dict(), "network": goal.state_dict()["network"]}
    before = {name: p.asnumpy().copy() for name, p in goal.params.items()}
    with pytest.raises(CheckpointError, match=re.escape(message)):
        goal.load_state_dict(state)
    assert all((before[name] == p.asnumpy()).all() for name, p in goal.params.items())


class Bare(nn.Cell):
    memory_size = 0
    shared_outputs = ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the network Bare has no attribute 'decision' (which output decides the action without exploration"),
        ({"decision": None, "memory_size": -1}, "Bare.memory_size: expected an integer of 0 or more, got -1"),
        ({"decision": None, "memory_size": True}, "Bare.memory_size: expected an integer of 0 or more, got True"),
    ],
)
def test_a_network_that_lacks_what_acting_needs_is_refused(given, message, monkeypatch):
    kind = type("Bare", (Bare,), given)
    with pytest.raises(ConfigError, match=re.escape(message)):
        policy_of(lambda spec, model, rng: kind(), monkeypatch)
