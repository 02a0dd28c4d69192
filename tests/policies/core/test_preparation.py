"""One preparation of the process, from the configuration alone, whoever builds the policy."""

import dataclasses
import logging
import subprocess
import sys

import pytest
from fakes import IMAGE, VECTOR, needs_kernels, tiny_config

from minding import training
from minding.engine.process import runtime
from minding.engine.process.runtime import Settings
from minding.engine.types import LaneContext
from minding.policies import get_policy_class, kernels
from minding.policies.core import prepare_process

UPDATES = "policy.learn.update_per_collect"
OWN_ENCODER = {"policy.model.encoder": "own_parts:Plain"}
CASES = {
    "short updates": ("dqn", VECTOR, {UPDATES: 1}, Settings(short_graphs=True)),
    "short updates from images": ("dqn", IMAGE, {UPDATES: 1}, Settings(short_graphs=True)),
    "a step for each rollout": ("a2c", VECTOR, {}, Settings(short_graphs=True)),
    "several minibatches": ("a2c", VECTOR, {"policy.learn.n_minibatch": 2}, Settings()),
    "several gradient steps": ("dqn", VECTOR, {UPDATES: 3}, Settings()),
    "two threads": ("ppo", VECTOR, {"run.jit_threads": 2}, Settings()),
    "two threads and images": ("ppo", IMAGE, {"run.jit_threads": 2}, Settings()),
    # An encoder of the user's may have convolutions of MindSpore.
    "two threads and an own encoder": (
        "ppo",
        VECTOR,
        {"run.jit_threads": 2, "device": "CPU", **OWN_ENCODER},
        Settings("CPU", threads=2, convolutions=True),
    ),
}


class Asked(Exception):
    """Stands for a preparation, with what was asked for."""


@needs_kernels
@pytest.mark.parametrize("case", CASES)
def test_scripts_commands_and_workers_prepare_mindspore_alike(case, monkeypatch):
    algorithm, observation, overrides, settings = CASES[case]
    cfg = tiny_config(algorithm, observation, **overrides, **{"policy.collect.backend": "graph"})
    factory = get_policy_class(algorithm)(cfg, modes=("collect",)).collect_mode.factory()
    builders = (lambda: get_policy_class(algorithm)(cfg), lambda: training.make_policy(cfg))
    of_the_learner = dataclasses.replace(settings, threads=7)
    factory = dataclasses.replace(factory, settings=of_the_learner)

    def prepare(asked):
        raise Asked(asked)

    monkeypatch.setattr(runtime, "prepare", prepare)
    monkeypatch.setattr(prepare_process, "cores", lambda: [0, 1])
    for build in builders:
        with pytest.raises(Asked) as caught:
            build()
        assert caught.value.args == (settings,)
    with pytest.raises(Asked) as caught:
        factory(LaneContext(0, {}))
    assert caught.value.args == (of_the_learner,)


@pytest.mark.slow
@needs_kernels
def test_a_script_that_imports_a_policy_first_is_prepared(monkeypatch):
    script = """
from minding.policies import PPO
import mindspore
from fakes import tiny_config
asked = []
for name in ("threads_num", "dispatch_threads_num"):
    owner = mindspore.device_context.cpu.op_tuning if name == "threads_num" else mindspore.runtime
    set_it = getattr(owner, name)
    setattr(owner, name, lambda n, name=name, set_it=set_it: (asked.append((name, n)), set_it(n)))
PPO(tiny_config("ppo", **{"run.jit_threads": 2}))
print(asked)
"""
    monkeypatch.setenv("PYTHONPATH", ":".join(entry for entry in sys.path if entry))
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (out.stdout.splitlines()[-1:], out.stderr) == (["[('threads_num', 1), ('dispatch_threads_num', 2)]"], "")


@needs_kernels
@pytest.mark.parametrize(("settings", "of_mindspore"), [({}, 1), (OWN_ENCODER, 3)])
def test_no_more_threads_than_cores_compute(settings, of_mindspore, monkeypatch, caplog):
    asked = []
    monkeypatch.setattr(prepare_process, "cores", lambda: [0, 2, 5])
    monkeypatch.setattr(runtime, "prepare", lambda settings: asked.append(settings.threads))
    monkeypatch.setattr(kernels, "prepare", asked.append)
    prepare_process._warn_once.cache_clear()
    for threads in (3, 4, 4):
        prepare_process.prepare(tiny_config("ppo", VECTOR, **{"run.jit_threads": threads}, **settings))
    assert asked == [of_mindspore, 3] * 3
    assert caplog.messages == [
        "run.jit_threads=4 exceeds the number of cores that this process may use: it computes with 3"
    ]


def test_another_preparation_is_reported_once(monkeypatch, caplog):
    runtime.load()
    monkeypatch.setattr(runtime._state, "settings", Settings(short_graphs=True))
    runtime._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, "minding"):
        for _ in range(2):
            runtime.prepare(Settings(threads=3, convolutions=True, short_graphs=True))
        runtime.prepare(Settings(short_graphs=True))
    assert len(caplog.messages) == 1
    assert (
        "for 1 of MindSpore's kernel threads instead of 3, networks without MindSpore's convolutions, which"
        in caplog.text
    )
