"""The network that agents of a team share: what is exported acts for one of them."""

import numpy as np
import pytest

from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.checkpoint import save_checkpoint
from minding.engine.config.identity import identity
from minding.engine.errors import ExportError
from minding.engine.run.run_dir import RunDir
from minding.policies.export.reader import open_mindir
from minding.policies.export.writer import export_policy


def test_the_exported_network_acts_for_one_agent(tmp_path):
    user = Config(env={"env_id": "agent_worlds:Parts"}, policy={"type": "ppo", "model": {"hidden": [16]}})
    cfg = compile_run(user, ["run.loggers=[]", f"run.out_dir={tmp_path}"])
    policy, path = training.make_policy(cfg, modes=("eval",)), tmp_path / "agent.mindir"
    description = export_policy(policy, path, "mindir", info={})
    inputs = [(each["name"], each["dtype"], each["shape"]) for each in description["inputs"]]
    assert inputs == [("obs.agent_id", "int64", ["batch"]), ("obs.observation", "float32", ["batch", 4])]
    seen = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    action = policy.eval_mode.forward({"observation": seen[None], "alive": np.ones((1, 3), bool)})
    outputs = dict(zip((each["name"] for each in description["outputs"]), open_mindir(path)([np.arange(3), seen])))
    assert outputs["action"].tolist() == action[0].tolist()
    run_dir, state = RunDir.create(cfg), {"policy": policy.state_dict()}
    save_checkpoint(run_dir.checkpoints / "iter_1", state, {"train_iter": 1, "identity": identity(cfg)})
    with pytest.raises(ExportError, match=r"agent\.mindir: it acts for one agent, .* has 3"):
        training.open_exported(run_dir, path)
