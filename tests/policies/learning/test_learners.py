"""Several learners: each has its part of a minibatch, and all make the same step."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np
import pytest
from fresh import run_fresh

from minding import training
from minding.configs import compile_run
from minding.engine.checkpoint import newest_checkpoint, read_manifest
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.process import collectives
from minding.engine.process.runtime import ms, nn, to_device
from minding.engine.run.run_dir import RunDir
from minding.policies.learning import learners
from minding.policies.learning.learners import divided
from minding.policies.learning.optim import SHARE, Group, Optimizer
from minding.policies.learning.steps import Inputs

SAME = """
import atexit
import os
import signal
import sys
import numpy as np
from compiled_once import shared
from fakes import Batches, rows_of, tiny_config
from minding.policies import get_policy_class

shared.install()
# As a thread of MindSpore that no longer reaches the scheduler does, when the group is left.
atexit.register(os.kill, os.getpid(), signal.SIGTERM)
size, names = int(sys.argv[1]), sys.argv[2:]
made = []
for name in names:
    learned = {}
    for learners in (1, size):
        # What one learner computes needs no graph.
        shared.eager = learners == 1
        settings = {"lanes.learners": learners, **({"policy.other.replay": "prioritized"} if name == "dqn" else {})}
        policy = get_policy_class(name)(tiny_config(name, **settings))
        batches, rng, priorities = Batches(policy, 32), np.random.default_rng(0), []
        for call in range(3):
            values = rows_of(batches.layout, 32, rng, {"action": 2})
            if "valid" in values:
                values["valid"] = (rng.random(32) < 0.7).astype(np.float32)
            block = (4, 4) if "cut" in batches.layout.fields else (8,)
            batch = batches(values, rng.integers(0, 32, (2, *block)))
            if name == "dqn":
                batch.weight = rng.random(batch.index.shape, np.float32)
            output = policy.learn_mode.forward(batch)
            priorities.append(output.priorities)
        learned[learners] = ({k: p.asnumpy().copy() for k, p in policy.params.items()}, output.metrics, priorities)
    (one, metrics, ranked), (several, over_all, ranked_by_all) = learned[1], learned[size]
    for key in one:
        np.testing.assert_allclose(several[key], one[key], rtol=1e-5, atol=1e-6, err_msg=f"{name} {key}")
    for key in metrics:
        np.testing.assert_allclose(over_all[key], metrics[key], rtol=1e-3, atol=1e-5, err_msg=f"{name} {key}")
    if name == "dqn":
        np.testing.assert_allclose(ranked_by_all, ranked, rtol=1e-4, atol=1e-6)
    # What changes outside of the steps reaches the others with the next call.
    policy.load_state_dict({**policy.state_dict(), "params": one})
    made.append((policy, batch))
# The learners of a process serve all of its policies, here again the first one.
for policy, batch in [*made[1:], made[0]]:
    policy.learn_mode.forward(batch)
    for other in policy._update.group.parameters():
        for key, p in policy.params.items():
            # The moments of observations move after the steps, and go to the others with the next call.
            assert ".normalizer." in key or other[key].tobytes() == p.asnumpy().tobytes(), (policy.name, key)
    print(policy.name)
"""


# With priorities, and with sequences of which some rows do not count. `proofs.learners` compares four learners, other
# algorithms, and more updates.
@pytest.mark.slow
def test_two_learners_compute_what_one_computes():
    names = ("dqn", "impala")
    out = run_fresh(SAME, "2", *names, quiet=False, limit=300, **{collectives.NODE_TIMEOUT: "60"})
    assert sorted(line for line in out if line in names) == sorted(names)


class Double(nn.Cell):
    def construct(self, x):
        return 2.0 * x


class Averaged(nn.Cell):
    def __init__(self, optim):
        super().__init__()
        self.optim = optim

    @ms.jit
    def construct(self, share, a, b, c):
        found = self.optim.of_all_learners({"one": (a, b), "two": (c,)}, {SHARE: share})
        return (*found["one"], *found["two"])


def test_gradients_of_each_group_are_averaged_in_place():
    shapes = {"a": (2,), "b": (2, 3), "c": (4,)}
    p = {name: ms.Parameter(ms.Tensor(np.zeros(shape, np.float32)), name=name) for name, shape in shapes.items()}
    optim = Optimizer(one=Group(params=[p["a"], p["b"]], rate=0.1), two=Group(params=[p["c"]], rate=0.1))
    # As with another learner that has the same gradients.
    optim.learners, optim.zero, optim.all_reduce = 2, ms.Tensor(np.zeros(1, np.float32)), Double()
    own = {name: np.random.default_rng(0).standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found = Averaged(optim)(to_device(np.float32([0.25])), *map(to_device, own.values()))
    for name, gradient in zip(shapes, found, strict=True):
        np.testing.assert_allclose(gradient.asnumpy(), 0.5 * own[name], rtol=1e-6)


def batch_of(index):
    layout = RowLayout({"obs": Field((2,))})
    return IndexedBatch(layout, None, np.asarray(index, np.int32))


def test_only_rows_and_what_belongs_to_them_are_divided():
    batch = batch_of([[0, 1, 2, 3], [4, 5, 6, 7]])
    inputs = Inputs(
        {"noise": np.arange(16).reshape(2, 4, 2), "rate": np.array([0.1, 0.2])}, {"tau": 0.5, "levels": np.arange(4)}
    )
    (first, of_first), (second, of_second) = divided(batch, inputs, 2)
    # All rows count.
    assert of_first.steps.pop("share").tolist() == of_second.steps.pop("share").tolist() == [[0.5], [0.5]]
    assert first.index.tolist() == [[0, 1], [4, 5]]
    assert second.index.tolist() == [[2, 3], [6, 7]]
    assert of_first.steps["noise"].tolist() == [[[0, 1], [2, 3]], [[8, 9], [10, 11]]]
    assert of_second.steps["noise"].tolist() == [[[4, 5], [6, 7]], [[12, 13], [14, 15]]]
    for inputs_of in (of_first, of_second):
        assert inputs_of.steps["rate"].tolist() == [0.1, 0.2]
        assert inputs_of.constants["levels"].tolist() == [0, 1, 2, 3]


def test_a_part_weighs_as_much_as_its_share_of_rows():
    counted = np.array([[True, False, True, True], [False] * 4])
    parts = divided(batch_of([[0, 1, 2, 3], [4, 5, 6, 7]]), Inputs(), 2, counted)
    shares = [given.steps["share"] for _, given in parts]
    np.testing.assert_allclose(shares, [[[1 / 3], [0.0]], [[2 / 3], [0.0]]], rtol=1e-6)


def test_strangers_do_not_keep_learners_waiting(monkeypatch):
    monkeypatch.setattr(collectives, "own_address", lambda: "127.0.0.1")
    strangers, friends = [], []

    def tell(facts):
        threading.Thread(target=come, args=pickle.loads(facts), daemon=True).start()  # noqa: S301 - made here

    def come(host, port, key):
        for number in range(150):
            strangers.append(socket.create_connection((host, port)))
            # One in two says nothing.
            strangers[-1].sendall(number % 2 * b"GET / HTTP/1.1\r\n\r\n")
        for rank in (2, 1):
            friends.append(Client((host, port), authkey=key))
            friends[-1].send(rank)

    monkeypatch.setattr(learners, "_summed", tell)
    first, second = learners._connected(3)
    first.send("first")
    second.send("second")
    assert [friend.recv() for friend in friends] == ["second", "first"]
    for each in strangers:
        each.close()


@pytest.mark.slow
@pytest.mark.eager
def test_a_killed_learner_ends_the_run_with_a_checkpoint(tmp_path):
    limit = 3
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), collectives.NODE_TIMEOUT: str(limit)}
    # One gradient step per call: its graph has no loop, and compiles faster.
    small = ("policy.learn.n_epoch=1", "policy.learn.n_minibatch=1", "policy.collect.n_sample=64", "run.ckpt_freq=1")
    train = [sys.executable, "-m", "minding", "train", "cartpole_ppo", "lanes.learners=2", *small, "-o", str(tmp_path)]
    with subprocess.Popen(train, env=env, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        try:
            deadline = time.monotonic() + 400
            while not list(tmp_path.glob("*/ckpt/iter_*/manifest.json")):
                assert time.monotonic() < deadline
                assert run.poll() is None
                time.sleep(0.05)
            other = learner_of(run.pid)
            # However long the run does not get to notice it: MindSpore would end it with SIGTERM.
            run.send_signal(signal.SIGSTOP)
            os.kill(other, signal.SIGKILL)
            time.sleep(limit + 1)
            run.send_signal(signal.SIGCONT)
            _, said = run.communicate(timeout=120)
        finally:
            run.kill()
    assert run.returncode == 1, said
    assert f"learner 1 (process {other}, exit code -9) has ended" in said
    assert said.count("has ended") == 1
    # Another number of learners continues from the checkpoint.
    run_dir = RunDir.open(next(tmp_path.iterdir()))
    steps = read_manifest(newest_checkpoint(run_dir.checkpoints))["env_step"]
    changes = [f"run.max_env_step={steps + 64}", "lanes.learners=1", "run.final_episodes=1"]
    cfg = compile_run(run_dir.load_config(), changes)
    assert training.train(cfg, run_dir, progress=False, resume="latest").env_step >= steps + 64


def learner_of(pid):
    """The process of the other learner: of the children that run Python, the one that computes most."""
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]

    def seconds(child):
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    return max((int(child) for each in children for child in each), key=seconds)
