"""A team of agents with one network: each learns from its own rows, and what is exported acts for one of them."""

import numpy as np
import pytest

from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.errors import ExportError
from minding.engine.run.run_dir import RunDir
from minding.policies.export.reader import open_mindir
from minding.policies.export.writer import export_policy

pytestmark = pytest.mark.slow

BEST = 8 + 5 + 8
RANDOM = BEST / 2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    user = Config(
        env=dict(env_id="agent_worlds:Parts", collector_env_num=4, evaluator_env_num=2),
        policy=dict(
            type="ppo",
            model=dict(hidden=[16]),
            learn=dict(learning_rate=0.01, n_epoch=8, entropy_weight=0.0),
            collect=dict(n_sample=128),
        ),
        run=dict(max_env_step=2560, final_episodes=4, loggers=[], out_dir=str(tmp_path_factory.mktemp("runs"))),
    )
    cfg = compile_run(user)
    run_dir = RunDir.create(cfg)
    return run_dir, training.train(cfg, run_dir, progress=False)


def test_agents_of_one_network_learn_what_each_of_them_has_to_do(run):
    _, summary = run
    assert summary.eval_return > BEST - 0.2 * (BEST - RANDOM)


def test_the_exported_network_acts_for_one_agent(run, tmp_path):
    policy = training.load_policy(run[0]).policy
    path = tmp_path / "agent.mindir"
    description = export_policy(policy, path, "mindir", info={})
    assert [(each["name"], each["shape"]) for each in description["inputs"]] == [("obs.observation", ["batch", 4])]
    seen = np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 2, 0]], np.float32)
    alive = np.ones((1, 3), bool)
    action = policy.eval_mode.forward({"observation": seen[None], "alive": alive})
    assert action.tolist() == [[5, 6, 6]]
    with pytest.raises(
        ExportError, match=r"agent\.mindir: it acts for one agent, but env\.env_id=.*Parts' has 3: evaluate"
    ):
        training.open_exported(run[0], path)
    outputs = dict(zip((each["name"] for each in description["outputs"]), open_mindir(path)([seen])))
    assert outputs["action"].tolist() == [5, 6, 6]
