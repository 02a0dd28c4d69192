"""An environment of which only one instance can exist: it is checked, trained and evaluated in turns."""

import gymnasium
import numpy as np
import pytest
from agent_worlds import Squad
from worlds import Small

from minding import training
from minding.configs import compile_run
from minding.engine import Config, RunDir
from minding.envs import check_env, make_env_manager

pytestmark = pytest.mark.eager

SINGLE = {"single_instance": True}


class Robot(Small):
    """A second live one raises, and steps of a closed one do."""

    live = made = 0

    def __init__(self, length=4):
        if Robot.live:
            raise RuntimeError("port 5000 is in use")
        Robot.live += 1
        Robot.made += 1
        super().__init__()
        self.fixed = length

    def reset(self, **kwargs):
        super().reset(**kwargs)
        self.length = self.fixed
        return self.observe(), {}

    def close(self):
        Robot.live -= 1


@pytest.fixture(autouse=True)
def none_is_left():
    Robot.live = Robot.made = 0
    yield
    assert Robot.live == 0


def test_the_check_goes_on_with_one():
    findings = check_env({}, 200, env_fn=Robot)
    assert [found.level for found in findings if "steps/s" not in found.text].count("warn") == 1
    found = next(each for each in findings if each.level == "warn")
    assert "a second environment in the same process: Robot cannot be made" in found.text
    assert "env.single_instance=true env.collector_env_num=1 env.evaluator_env_num=1" in found.fix
    assert [each.text for each in findings][-3:-1] == [
        "passes Gymnasium's check_env",
        "a resumed run begins a new episode (env.single_instance)",
    ]
    assert {each.level for each in check_env(SINGLE, 200, env_fn=Robot)} == {"ok"}


def test_a_reset_takes_the_instance_and_cuts_the_other():
    collect = make_env_manager(SINGLE, 1, 0, env_fn=Robot)
    evaluate = make_env_manager(SINGLE, 1, 1, training=False, env_fn=Robot)
    made = Robot.made
    action = np.zeros(1, np.int64)
    collect.reset()
    before = collect.step(action)
    assert before.valid is None
    evaluate.reset()
    ended = [evaluate.step(action) for _ in range(4)][-1]
    assert (ended.terminated | ended.truncated).all()
    cut = collect.step(action)
    assert cut.valid.tolist() == [False]
    assert not (cut.terminated | cut.truncated).any()
    assert not cut.episodes
    assert collect.episode_steps.tolist() == [0]
    assert collect.fault_count == 0
    after = collect.step(action)
    assert after.valid is None
    assert evaluate.step(action).valid.tolist() == [False]
    assert Robot.made == made
    collect.close()
    assert Robot.live == 1
    evaluate.close()


def test_a_restored_one_begins_a_new_episode():
    manager = make_env_manager(SINGLE, 1, 0, env_fn=Robot)
    assert manager.resume_guarantee == "episode-boundary"
    manager.reset()
    manager.step(np.zeros(1, np.int64))
    state = manager.state_dict()
    assert state["source"]["actions"] == {}
    copy = make_env_manager(SINGLE, 1, 5, env_fn=Robot)
    copy.load_state_dict(state)
    assert copy.episode_steps.tolist() == [0]
    assert copy.resume_guarantee == "episode-boundary"
    manager.close()
    copy.close()


def test_agents_take_turns_too():
    class Single(Squad):
        live = 0

        def __init__(self, *args, **kwargs):
            assert not Single.live
            Single.live += 1
            super().__init__(*args, **kwargs)

        def close(self):
            Single.live -= 1

    first = make_env_manager(SINGLE, 1, 0, env_fn=Single)
    second = make_env_manager(SINGLE, 1, 1, env_fn=Single)
    first.reset()
    second.reset()
    assert Single.live == 1
    first.close()
    second.close()
    assert Single.live == 0


def test_a_run_collects_and_evaluates_on_the_one_instance(tmp_path):
    gymnasium.register("tests/Robot-v0", Robot)
    settings = [f"run.out_dir={tmp_path}", "run.loggers=[]", "run.final_episodes=3", "run.max_env_step=400"]
    settings += ["env.single_instance=true", "env.collector_env_num=1", "env.evaluator_env_num=1"]
    settings += ["policy.eval.freq=100", "policy.eval.n_episode=2", "policy.model.hidden=[8]"]
    settings += ["policy.collect.n_sample=50", "policy.learn.n_minibatch=1"]
    try:
        cfg = compile_run(Config(env={"env_id": "tests/Robot-v0"}, policy={"type": "ppo"}), settings)
        folder = RunDir.create(cfg)
        summary = training.train(cfg, folder, progress=False)
    finally:
        del gymnasium.registry["tests/Robot-v0"]
    assert summary.n_eval_episodes == 3
    rows = (folder.path / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("eval/return_mean")
    assert sum(bool(row.split(",")[column]) for row in rows[1:]) >= 3
