"""A small part of the forged run folders of `proofs.forged`, with a policy that needs no MindSpore."""

import logging

import numpy as np
import pytest
import recordings

from minding.configs import compile_run
from minding.engine import Config
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.checkpoint import BlockArray, save_checkpoint
from minding.engine.config.identity import identity
from minding.engine.data.dataset import Dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.description import describe
from minding.engine.run.run_dir import RunDir
from minding.middleware import CkptSaver
from proofs import forged as forge_proofs

CASES = {
    **{"checkpoints": 120, "configurations": 60, "metrics": 60, "datasets": 100},
    **{"links": 32, "pipes": 32, "packages": 60, "claims": 32},
}


class Policy:
    """Two arrays, a part in blocks, and some JSON; refuses nothing by itself."""

    def __init__(self, cfg):
        self.config = cfg
        self.load_state_dict({"params": {"w": np.zeros(4, np.float32)}, "ring": np.zeros((8, 2), np.float32), "n": 1})

    def state_dict(self):
        return {"params": {"w": self.w}, "ring": BlockArray(self.ring, 4, [1, 1]), "n": self.n}

    def load_state_dict(self, state):
        self.w, self.ring, self.n = state["params"]["w"] + 0, state["ring"].reshape(8, 2), int(state["n"])


class Readers(forge_proofs.Readers):
    def __init__(self, run, newest):
        self.run, self.newest, self.usual = run, newest, {}
        self.policy = Policy(compile_run(RunDir.open(run).load_config()))
        self.task = Task()
        self.task.start(False, OnlineRLContext())
        self.saver = CkptSaver(self.policy, run.name, out_dir=run.parent, task=self.task)
        self.task.use(self.saver)


@pytest.fixture
def forged(tmp_path):
    user = Config(exp_name="run", env={"env_id": "CartPole-v1"}, policy={"type": "ppo"})
    cfg = compile_run(user, [f"run.out_dir={tmp_path}"])
    run = RunDir.create(cfg)
    run.metrics.write_text("env_step,eval/return_mean\n0,1.0\n100,2.0\n200,3.0\n")
    readers = Readers(run.path, "iter_2")
    counters = readers.task.state_dict()
    for step in (1, 2):
        counters["ctx"] = {**counters["ctx"], "train_iter": step, "env_step": step, "total_step": step}
        info = {"identity": identity(cfg), "guarantee": "exact", **dict.fromkeys(("env_step", "train_iter"), step)}
        state = {"policy": readers.policy.state_dict(), "task": counters, "config": cfg}
        save_checkpoint(run.checkpoints / f"iter_{step}", state, {**info, "total_step": step})
    episode = recordings.log(2, [0, 1], obs=np.ones((3, 4)))
    save_dataset(run.path / "data", Dataset.of_episodes([episode, episode], describe(cfg.env)))
    original = run.path.rename(tmp_path / "original")
    return readers, original


QUICK = ("datasets", "metrics")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in CASES]
)
def test_forged_files_are_refused_or_an_older_one_is_taken(forged, kind, caplog):
    readers, original = forged
    logging.getLogger("minding").setLevel(logging.CRITICAL)
    try:
        found = list(forge_proofs.cases(kind, CASES[kind], original, readers, seed=1))
    finally:
        logging.getLogger("minding").setLevel(logging.NOTSET)
    assert [f"{case}: {what}" for case, what, _ in found if what.startswith("BROKEN")] == []
    kinds = {what for _, what, _ in found}
    assert ("older" if kind == "checkpoints" else "refused") in kinds
