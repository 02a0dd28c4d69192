"""Parts from outside, named as ``module:Name``: schedules, optimizers, loggers and environment backends."""

import logging
import math
import sys
import types

import gymnasium
import numpy as np
import pytest
from mindspore import ops

import minding
from minding.engine.annealing import left, rate_left
from minding.engine.config.trust import is_foreign
from minding.engine.process.runtime import ms, nn
from minding.engine.run.loggers import MetricsLogger, make_loggers
from minding.engine.run.run_dir import RunDir
from minding.envs import make_env_manager
from minding.policies.learning.optim import Group, Method, Optimizer

pytestmark = pytest.mark.shared_graphs


class Plain(Method):
    """Gradient descent."""

    def construct(self, grads, rate, reads):
        grads, norm = self.bounded(ops.depend(grads, reads))
        done = ()
        for i in range(self.count):
            done = (*done, ops.assign(self.params[i], self.params[i] - rate * grads[i]))
        return ops.depend(norm, done)


class Rows(MetricsLogger):
    """Keeps the rows; fails when it is told to."""

    def __init__(self, run_dir):
        self.folder, self.rows = run_dir.path, made
        made.append(self.folder)

    def write(self, row, step):
        if row.get("broken"):
            raise KeyError("no such table")
        self.rows.append((step, dict(row)))


class Unmade(MetricsLogger):
    def __init__(self, run_dir):
        raise KeyError("misspelled")


made: list = []


def quarter(share):
    return max(0.0, 1.0 - 4.0 * share)


def vector(settings, num_envs, seed):
    return gymnasium.make_vec(settings["env_id"], num_envs, vectorization_mode="sync")


@pytest.fixture(autouse=True)
def users(monkeypatch):
    """The parts as a user's module has them."""
    module = types.ModuleType("users_parts")
    module.Plain, module.Rows, module.Unmade = Plain, Rows, Unmade
    module.quarter, module.vector = quarter, vector
    module.negative = lambda share: -1.0
    module.text = lambda share: "half"
    module.one_less = lambda settings, num_envs, seed: vector(settings, num_envs - 1, seed)
    module.single = lambda settings, num_envs, seed: gymnasium.make(settings["env_id"])
    module.broken = lambda settings, num_envs, seed: settings["misspelled"]
    monkeypatch.setitem(sys.modules, "users_parts", module)
    made.clear()


# Schedules


def test_a_schedule_is_the_users_function_of_the_elapsed_share():
    assert [left("users_parts:quarter", share) for share in (0.0, 0.125, 0.25, 2.0)] == [1.0, 0.5, 0.0, 0.0]
    assert rate_left("users_parts:quarter", 0.125) == 0.5


# Optimizers


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.array([1.0, 2.0], np.float32)), name="weight")


def learn(**settings):
    return {"learning_rate": 0.5, "anneal_lr": False, "anneal_kind": "linear", "anneal_points": [], **settings}


def test_an_optimizer_of_the_users_steps_with_rate_and_bound():
    net = Net()
    (step,) = Optimizer(net=Group.of(net, learn(optimizer="users_parts:Plain"), max_grad_norm=1.0)).steps
    gradient = (ms.Tensor(np.array([3.0, 4.0], np.float32)),)
    assert float(ms.jit(step)(gradient, ms.Tensor(np.float32(0.5)), gradient[0])) == 5.0
    np.testing.assert_allclose(net.weight.asnumpy(), [1.0 - 0.5 * 0.6, 2.0 - 0.5 * 0.8], rtol=1e-6)


# Loggers


def test_a_users_logger_gets_rows_and_may_fail_alone(tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="minding")
    (logger,) = make_loggers(["users_parts:Rows"], RunDir(tmp_path))
    logger.open({}, 0)
    logger.write({"loss": 1.0}, 8)
    logger.flush()
    assert made == [tmp_path, (8, {"loss": 1.0})]
    logger.write({"broken": 1.0}, 16)
    logger.write({"loss": 2.0}, 24)
    logger.purge_after(8, 1)
    logger.close()
    assert len(made) == 2
    (record,) = caplog.records
    said = record.getMessage()
    assert "run.loggers='users_parts:Rows': write failed: KeyError: 'no such table' (" in said
    assert "test_extending.py:" in said


# Backends


def test_a_backend_of_the_users_steps_the_environments():
    with_backend = make_env_manager({"env_id": "CartPole-v1", "backend": "users_parts:vector"}, 3, 0)
    assert with_backend.obs.shape == (3, 4)
    step = with_backend.step(np.zeros(3, np.int64))
    assert (step.reward == 1.0).all()
    assert math.isfinite(step.next_obs.sum())
    with_backend.close()


# Together


@pytest.mark.slow
def test_own_parts_learn_together_and_need_trust_later(tmp_path):
    settings = [
        f"run.out_dir={tmp_path}",
        "env.backend=users_parts:vector",
        "env.collector_env_num=2",
        "run.loggers=['users_parts:Rows']",
        "run.metrics_freq=64",
        "policy.collect.n_sample=64",
        "policy.learn.anneal_lr=true",
        "policy.eval.n_episode=1",
    ]
    agent = minding.Agent("ppo", "CartPole-v1", settings=settings, anneal_kind=quarter, optimizer=Plain, progress=False)
    agent.learn(256)
    config = agent.cfg
    agent.close()
    assert config.policy.learn.optimizer == f"{__name__}:Plain"
    # A module without a file cannot be signed.
    assert is_foreign(agent.run_dir / "config.yaml")
    rates = [row["train/learning_rate"] for _, row in made[1:] if "train/learning_rate" in row]
    # The schedule is over after a quarter of the run.
    assert 0.0 < rates[0] < config.policy.learn.learning_rate
    assert rates[-1] == 0.0
