"""The agent as an object: learning in parts, acting, saving and loading."""

import ctypes
import json
import logging
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading

import gymnasium
import numpy as np
import pytest
from fresh import run_fresh
from gymnasium import spaces
from of_algorithms import SMALL, environment, recorded, short_run

import minding
from benchmarks.fingerprint import fingerprint
from minding import training
from minding.cli import run as command
from minding.configs import compile_run
from minding.engine import paths
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.engine.data import obs_trees
from minding.engine.data.dataset import load_dataset
from minding.engine.errors import CheckpointError, ConfigError, MindingError, RunInUseError, SetupError, ShapeError
from minding.engine.process import runtime
from minding.engine.run.metrics import read_metrics
from minding.envs import make_collector_env, make_evaluator_env
from minding.policies import ALGORITHMS, kernels
from minding.training import session

pytestmark = pytest.mark.eager

FEW = ("policy.learn.n_epoch=1", "policy.learn.n_minibatch=2")
"""Gradient steps of a rollout, which are not compiled here."""
PARTS = {
    "ppo": ["policy.collect.n_sample=128", "policy.learn.anneal_lr=true", *FEW],
    "dqn": ["policy.learn.warmup=64", "policy.learn.batch_size=16"],
}
"""Of each kind: on-policy with a schedule, replay. The tests of resuming have all the others."""


class Corridor(gymnasium.Env):
    """Ten steps long."""

    observation_space = spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), float(action), False, self.steps == 10, {}


@pytest.mark.shared_graphs
def test_a_run_has_one_session_of_a_process_at_a_time(tmp_path):
    first = agent("ppo", tmp_path, *PARTS["ppo"])
    first.learn(128)
    second = minding.load(first.run_dir, progress=False)
    with pytest.raises(RunInUseError, match=r"in use by another agent or session of this process: close\(\) it first"):
        second.learn(128)
    assert first.learn(128).env_step == 256
    first.close()
    second = minding.load(first.run_dir, progress=False)
    assert second.learn(128).env_step == 384
    steps = read_metrics(first.run_dir / "metrics.csv")["env_step"].tolist()
    assert sorted(set(steps)) == steps


@pytest.mark.shared_graphs
def test_threads_that_build_or_learn_at_once_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "_PATIENCE", 0.1)
    made, errors = agent("ppo", tmp_path, *PARTS["ppo"]), []

    def attempt(call):
        with pytest.raises(SetupError) as error:
            call()
        errors.append(error)

    def refused(ctx):
        for call in (lambda: other.learn(128), lambda: agent("ppo", tmp_path).policy):
            thread = threading.Thread(target=attempt, args=(call,))
            thread.start()
            thread.join()

    other = agent("ppo", tmp_path, *PARTS["ppo"], seed=1)
    made.learn(128, use=refused)
    assert len(errors) == 2
    assert all("serves one thread at a time" in str(error.value) for error in errors)
    assert other.learn(128).env_step == 128


DAEMON = """
import threading, time, minding
from minding.engine.process import compiled
# However long a graph takes to compile on a busy machine.
compiled._LONGEST_END = 1000.0
agent = minding.Agent("dqn", "CartPole-v1", seed=2, hidden=[8], progress=False)
agent.learn(128)
threading.Thread(target=agent.learn, args=(10**6,), daemon=True).start()
time.sleep(0.5)
print("ends")
"""
SEVERAL = """
import threading, minding
def learn(seed):
    minding.Agent("ppo", "CartPole-v1", seed=seed, hidden=[8]).learn(128)
agent = minding.Agent("ppo", "CartPole-v1", hidden=[8])
agent.learn(128)
for seed in (1, 2):
    thread = threading.Thread(target=learn, args=(seed,))
    thread.start()
    thread.join()
print("ends")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [DAEMON, SEVERAL], ids=["a daemon thread learns", "an agent is open"])
def test_a_process_with_several_threads_ends(program, tmp_path, monkeypatch):
    # MindSpore aborts a process whose static objects are gone while it computes, or while a graph of a thread is kept.
    monkeypatch.chdir(tmp_path)
    assert run_fresh(program, quiet=False, limit=1200)[-1] == "ends"


def test_a_folder_made_current_is_not_the_users_in_a_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = paths.anchored(), paths.anchored()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    os.chdir("/")
    assert paths.current_folder() == str(tmp_path)
    second.__exit__(None, None, None)
    assert paths.current_folder() == str(tmp_path)


class Plain(gymnasium.Wrapper):
    """A wrapper as most people write it."""


class Wanderer(Corridor):
    """Makes another folder the current one, in the call that `moves` names."""

    def __init__(self, moves, to):
        self.moves, self.to = moves, to
        self.go("__init__")

    def go(self, call):
        if self.moves == call:
            os.makedirs(self.to, exist_ok=True)
            os.chdir(self.to)

    def reset(self, **kwargs):
        self.go("reset")
        return super().reset(**kwargs)

    def step(self, action):
        self.go("step")
        return super().step(action)


def agent(algorithm, out_dir, *settings, **keys):
    settings = [f"run.out_dir={out_dir}", *(each for each in SMALL if "eval.n_episode" not in each), *settings]
    return minding.Agent(algorithm, environment(algorithm), settings=settings, progress=False, **keys)


def state_of(made):
    """The policy in the newest checkpoint of its run."""
    state, _ = load_checkpoint(newest_checkpoint(made.run_dir / "ckpt"))
    return fingerprint(state["policy"])


@pytest.mark.shared_graphs
@pytest.mark.parametrize("algorithm", PARTS)
def test_learning_in_parts_gives_the_bits_of_learning_at_once(algorithm, tmp_path):
    settings = PARTS[algorithm]
    whole = agent(algorithm, tmp_path / "whole", *settings)
    whole.learn(900)
    parts = agent(algorithm, tmp_path / "parts", *settings)
    first = parts.learn(500, total=900)
    parts.learn(400, total=900)
    resumed = minding.load(_copy_after(algorithm, tmp_path, settings), progress=False)
    resumed.learn(total=900)
    assert 500 <= first.env_step < 900
    assert state_of(parts) == state_of(whole)
    assert state_of(resumed) == state_of(whole)
    for each in (whole, parts, resumed):
        each.close()


def _copy_after(algorithm, tmp_path, settings):
    """The run folder of an agent that has learned the first part only."""
    made = agent(algorithm, tmp_path / "begun", *settings)
    made.learn(500, total=900)
    made.close()
    return made.run_dir


def test_a_second_call_continues_and_runs_its_own_schedule(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="minding")
    made = agent("ppo", tmp_path, *PARTS["ppo"], learning_rate=0.01)
    seen = []
    first = made.learn(512, use=[lambda ctx: seen.append(ctx.clock)])
    assert "begins at" not in caplog.text
    policy, compiled_before = made.policy, made.policy._update
    second = made.learn(512)
    assert (first.env_step, second.env_step) == (512, 1024)
    assert made.policy is policy
    assert made.policy._update is compiled_before
    assert seen == [128, 256, 384, 512, 640, 768, 896, 1024]
    assert "the learning rate starts at 0.01 again and is annealed over these 512 steps" in caplog.text
    rates = read_metrics(made.run_dir / "metrics.csv")["train/learning_rate"]
    rates = rates[np.isfinite(rates)]
    # Each row is the mean over a call: all, 3/4, 1/2 and 1/4 of the rate.
    np.testing.assert_allclose(rates, 0.01 * 0.625)
    obs = np.random.default_rng(0).normal(size=(50, 4))
    before = made.predict(obs)
    made.close()
    assert np.array_equal(made.predict(obs), before)
    assert np.array_equal(minding.load(made.run_dir, progress=False).predict(obs), before)
    assert made.learn(128).env_step == 1152
    made.close()
    summary = json.loads((made.run_dir / "summary.json").read_text())
    assert summary["env_step"] == 1152


def rates_of(made):
    rates = read_metrics(made.run_dir / "metrics.csv")["train/learning_rate"]
    return rates[np.isfinite(rates)].tolist()


def test_calls_shorter_than_a_rollout_learn_at_the_full_rate(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="minding")
    made = agent("ppo", tmp_path, *PARTS["ppo"], "run.metrics_freq=1", learning_rate=0.01)
    for _ in range(3):
        summary = made.learn(100)
    made.close()
    assert summary.env_step == 384
    assert rates_of(made) == pytest.approx([0.01] * 3)
    assert caplog.text.count("100 steps are less than one rollout of 128: all updates of this call use the") == 3


def test_where_nothing_is_left_learn_returns_the_figures(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="minding")
    made = agent("ppo", tmp_path, *PARTS["ppo"], "run.max_env_step=256", "run.metrics_freq=1")
    # A call that could not begin does not count.
    made.cfg.run.out_dir = __file__
    with pytest.raises(ConfigError, match="out_dir"):
        made.learn(100, total=512)
    made.cfg.run.out_dir = str(tmp_path)
    # Each call goes on to a multiple of 100: at 128, 256, 384, 512; what overshoots is not made twice.
    steps = [made.learn(100, total=512).env_step for _ in range(7)]
    assert steps == [128, 256, 384, 512, 512, 512, 512]
    assert caplog.text.count("no steps left to learn: the run is at step 512, and this call ends at step ") == 3
    # The settings end at 256.
    assert made.learn().env_step == 512
    assert "this call ends at step 256" in caplog.text
    made.close()
    assert rates_of(made) == pytest.approx([0.0003, 0.000225, 0.00015, 0.000075])
    again = minding.load(made.run_dir, progress=False)
    summary = again.learn(total=300)
    again.close()
    assert (summary.env_step, summary.stop_reason) == (512, "max_env_step")
    assert np.isfinite(summary.eval_return)


class Stopper:
    """Counts iterations, and ends a call at a given one; a class, of which the agent makes one for each session."""

    at = 2

    def __init__(self, task):
        self.task, self.count = task, 0

    def __call__(self, ctx):
        self.count += 1
        self.task.finish = self.count == self.at

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_a_callback_that_is_a_class_is_made_and_can_end_a_call(tmp_path):
    made = agent("ppo", tmp_path, *PARTS["ppo"])
    summary = made.learn(1280, use=Stopper)
    assert (summary.env_step, summary.stop_reason) == (256, "finish")
    assert made.learn(128).env_step == 384
    made.close()


def test_callbacks_that_fail_are_replaced_and_the_run_goes_on(tmp_path, caplog):
    seen = []

    def broken(ctx):
        raise ZeroDivisionError("in the callback")

    made = agent("ppo", tmp_path, *PARTS["ppo"])
    made.learn(128, total=768, use=[Stopper])
    with pytest.raises(ZeroDivisionError) as raised:
        made.learn(128, total=768, use=broken)
    assert "use: Stopper was removed; its state is lost" in caplog.text
    assert "learn(..., use=[...]) continues it with other callbacks" in raised.value.__notes__[-1]
    summary = made.learn(total=512, use=[lambda ctx: seen.append(ctx.clock)])
    assert (summary.env_step, seen) == (512, [384, 512])
    # In an open session, too.
    assert made.learn(total=640, use=Stopper).env_step == 640
    made.close()
    assert "use: Stopper has no state in the checkpoint and starts new" in caplog.text
    again = minding.load(made.run_dir, progress=False)
    assert again.learn(total=768).env_step == 768
    again.close()


def spaces_of(algorithm, folder):
    """An agent that has not learned, in a small environment of its own kind."""
    settings = [f"run.out_dir={folder}", *SMALL, *short_run(algorithm)]
    return minding.Agent(algorithm, environment(algorithm), settings=settings, progress=False)


def played(made, steps=25):
    """Observations of an evaluation, and the actions that its policy took."""
    env = make_evaluator_env(made.cfg)
    policy = made.policy.eval_mode
    policy.reset()
    obs, pairs = env.reset(), []
    for _ in range(steps):
        action = policy.forward(obs)
        pairs.append((obs, action))
        step = env.play(action)
        over = step.terminated | step.truncated
        obs = step.obs
        if over.any():
            break
    env.close()
    policy.reset()
    return pairs


ALIKE = {"a2c", "a3c", "ac", "airl", "gail", "impala", "trex", "trpo", "awac", "bc", "discrete_sac", "discrete_sqil"}
ALIKE |= {"iql", "qrdqn", "cql", "edac", "redq", "sqil", "tqc", "td3", "td3_bc", "discrete_cql", "idqn", "matd3"}
ALIKE |= {"qtran", "wqmix"}
"""Algorithms whose acting network and actor are those of another one, which `predict` is tested with."""


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - ALIKE))
def test_predict_equals_evaluation_memory_included(algorithm, tmp_path):
    made = spaces_of(algorithm, tmp_path)
    pairs = played(made)
    assert len(pairs) > 2
    for obs, action in pairs:
        assert np.array_equal(rows(made.predict(nested(obs))), action)
    # A second player remembers nothing of the first.
    other = made.player()
    made.reset()
    for obs, action in pairs:
        assert np.array_equal(rows(other(nested(obs))), action)
        assert np.array_equal(rows(made.predict(nested(obs))), action)


def rows(action):
    """An action of a tuple of parts as rows."""
    return np.column_stack(action) if isinstance(action, tuple) else action


def nested(obs):
    """An observation in dicts, as an environment returns it."""
    if isinstance(obs, np.ndarray):
        return obs
    tree = {}
    for path, leaf in obs_trees.named(obs).items():
        *parents, last = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    made = agent("ppo", tmp_path_factory.mktemp("pole"), *PARTS["ppo"])
    made.learn(256)
    yield made
    made.close()


OBS = np.float32([0.01, -0.02, 0.03, 0.04])


@pytest.mark.parametrize(
    ("algorithm", "env_id", "settings", "obs", "shape"),
    [
        ("ppo", "FrozenLake-v1", [], np.zeros(0, np.int64), (0,)),
        ("ppo", "CartPole-v1", ["policy.model.memory=gru"], [], (0,)),
        ("sac", "Pendulum-v1", [], np.zeros((0, 3)), (0, 1)),
        ("mappo", "agent_worlds:Parts", [], {"observation": np.zeros((0, 3, 4))}, (0, 3)),
    ],
)
def test_an_empty_batch_has_an_empty_batch_of_actions(algorithm, env_id, settings, obs, shape):
    made = minding.Agent(algorithm, env_id, settings=settings, hidden=[8])
    whole = made.make_env().reset(seed=0)[0]
    if isinstance(obs, dict):
        obs = {**{key: np.zeros((0, *np.shape(value))) for key, value in whole.items()}, **obs}
    single = np.asarray(made.predict(whole))
    for explore in (False, True):
        found = made.predict(obs, explore=explore)
        assert (found.shape, found.dtype) == (shape, single.dtype)
    assert shape[1:] == single.shape


def test_single_observations_and_batches(pole):
    one = pole.predict(OBS)
    assert isinstance(one, np.integer)
    assert pole.predict([OBS, OBS]).tolist() == [one, one]
    assert pole.predict(OBS.astype(np.float64)) == one
    assert set(np.array([pole.predict(OBS, explore=True) for _ in range(50)]).tolist()) == {0, 1}


class Numbered(Corridor):
    """Observes numbers of categories."""

    def __init__(self, kind="plain"):
        nested = spaces.Dict(floor=spaces.Discrete(4, start=2), doors=spaces.MultiDiscrete([2, 3]))
        self.observation_space = spaces.Discrete(4) if kind == "plain" else nested

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), *super().step(action)[1:]


def test_an_observation_outside_its_space_is_refused():
    made = minding.Agent("ppo", Numbered, progress=False)
    assert made.predict(3) in (0, 1)
    assert made.predict([0, 3]).shape == (2,)
    for obs, message in (
        (-1, "^observation is -1, its space has the values from 0 to 3"),
        (4, "^observation is 4, its space has the values from 0 to 3"),
        ([0, 1, 4], "^row 2: observation is 4, its space has the values from 0 to 3"),
    ):
        with pytest.raises(ShapeError, match=message):
            made.predict(obs)
    nested = minding.Agent("ppo", Numbered, settings=["env.env_kwargs.kind=nested"], progress=False)
    assert nested.predict({"floor": 5, "doors": [1, 2]}) in (0, 1)
    with pytest.raises(ShapeError, match="observation 'floor' is 1, its space has the values from 2 to 5"):
        nested.predict({"floor": 1, "doors": [1, 2]})
    with pytest.raises(ShapeError, match=r"observation 'doors' is \[2, 2\], its space has the values from \[?0"):
        nested.predict({"floor": 2, "doors": [2, 2]})


def test_a_mask_that_allows_no_action_is_refused():
    made = minding.Agent("dqn", "minding/TicTacToe-v0", progress=False)
    board = {"observation": np.zeros((2, 3, 3), np.float32), "action_mask": np.eye(9, dtype=np.int8)[4]}
    assert made.predict(board) == 4
    with pytest.raises(ShapeError, match="observation 'action_mask' allows no action"):
        made.predict({**board, "action_mask": np.zeros(9, np.int8)})


def test_a_player_works_in_a_thread_and_as_a_pickled_copy(pole):
    player, obs = pole.player(), np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    expected = pole.predict(obs)
    copy = pickle.loads(pickle.dumps(player))  # noqa: S301
    found = []
    thread = threading.Thread(target=lambda: found.append(player(obs)))
    thread.start()
    thread.join()
    assert np.array_equal(found[0], expected)
    assert np.array_equal(copy(obs), expected)


def test_a_graph_belongs_to_its_thread(tmp_path):
    made = agent("ppo", tmp_path, "policy.collect.backend=graph")
    player, errors = made.player(), []
    assert player(OBS) in (0, 1)

    def act():
        try:
            player(OBS)
        except MindingError as error:
            errors.append(str(error))

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    assert "works only in the thread that made it" in errors[0]


def test_what_was_saved_acts_alike_and_says_what_it_reached(pole, tmp_path, monkeypatch):
    folder = pole.save(tmp_path / "pole", evaluate=5)
    files = {"policy.safetensors", "config.yaml", "checksums.json", "README.md", "episode.gif", "learner"}
    assert {each.name for each in folder.iterdir()} == files
    card = (folder / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: "minding"\n')
    assert "://" not in card
    assert f"Mean return {pole.evaluate(5).mean:.1f} over 5 episodes" in card
    loaded = minding.load(folder, progress=False)
    obs = np.random.default_rng(1).normal(size=(50, 4))
    assert np.array_equal(loaded.predict(obs), pole.predict(obs))
    assert loaded.evaluate(3).returns == pole.evaluate(3).returns
    monkeypatch.setattr(pole, "evaluate", lambda *_: pytest.fail("the agent was evaluated first"))
    with pytest.raises(ConfigError, match=r"save: '.*' exists: remove it, or give another folder"):
        pole.save(folder)


def test_a_save_for_which_the_disk_has_no_room_is_one_sentence(pole, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, before[1]))
    try:
        with pytest.raises(ConfigError, match=r"save: '.*saved' cannot be written: File too large"):
            pole.save(tmp_path / "saved", evaluate=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_save_that_is_interrupted_leaves_no_folder(how, pole, tmp_path):
    saved = pole.save(tmp_path / "saved", evaluate=0)
    lines = ["import os, signal, minding", "from minding.training import saved_agent", "def film(*args):"]
    lines += [
        f"    {how}",
        "saved_agent.film_episode = film",
        f"minding.load({str(saved)!r}).save('again', evaluate=0)",
    ]
    program = [sys.executable, "-c", "\n".join(lines)]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode in (-signal.SIGINT, -signal.SIGKILL), ended.stderr
    assert not (tmp_path / "again").exists()
    pole.save(tmp_path / "again", evaluate=0)
    assert {each.name for each in tmp_path.iterdir()} == {"saved", "again"}


def test_what_was_saved_has_its_moments_and_each_array_its_shape(tmp_path):
    made = agent("ppo", tmp_path, "policy.model.normalize_obs=true")
    made.learn(256)
    folder = made.save(tmp_path / "saved", evaluate=0)
    obs = np.random.default_rng(1).normal(size=(50, 4))
    assert np.array_equal(minding.load(folder, progress=False).predict(obs), made.predict(obs))


def test_a_run_folder_and_a_checkpoint_are_loaded_too(pole):
    obs = np.random.default_rng(2).normal(size=(50, 4))
    for path in (pole.run_dir, newest_checkpoint(pole.run_dir / "ckpt")):
        assert np.array_equal(minding.load(path, progress=False).predict(obs), pole.predict(obs))


def rates(caplog):
    return [message for message in caplog.messages if message.startswith("the learning rate")]


@pytest.mark.parametrize("source", ["saved", "run"])
def test_a_loaded_agent_keeps_its_rate_and_moments(source, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="minding")
    made = agent("ppo", tmp_path, *PARTS["ppo"], learning_rate=0.01)
    made.learn(512)
    state = made.policy.state_dict()["params"]
    folder = made.save(tmp_path / "saved", evaluate=0) if source == "saved" else made.run_dir
    made.close()
    loaded = minding.load(folder, progress=False)
    # Weights, critics and moments, before a further step.
    assert all(np.array_equal(value, state[name]) for name, value in loaded.policy.state_dict()["params"].items())
    loaded.learn(128)
    # The last of the four rollouts of 128 steps learned with a quarter of the rate.
    assert rates(caplog)[-1].startswith("the learning rate stays at 0.0025, where its schedule ended; learn(...")
    assert (loaded.cfg.policy.learn.anneal_lr, loaded.cfg.policy.learn.learning_rate) == (False, 0.0025)
    metrics = read_metrics(loaded.run_dir / "metrics.csv")
    # The first row of the continued run is the mean over all its iterations.
    means = {"saved": 0.0025, "run": (0.01 + 0.0075 + 0.005 + 0.0025 + 0.0025) / 5}
    assert metrics["train/learning_rate"][-1] == pytest.approx(means[source])
    loaded.learn(128, anneal=True)
    assert (loaded.cfg.policy.learn.anneal_lr, loaded.cfg.policy.learn.learning_rate) == (True, 0.01)
    loaded.close()


def test_learn_without_steps_continues_as_resume_does(tmp_path):
    settings = [*PARTS["ppo"], "run.max_env_step=900"]
    whole = agent("ppo", tmp_path / "whole", *settings)
    whole.learn()
    whole.close()
    parts = agent("ppo", tmp_path / "parts", *settings)
    parts.learn(500, total=900)
    parts.close()
    resumed = minding.load(parts.run_dir, progress=False)
    resumed.learn()
    resumed.close()
    assert state_of(resumed) == state_of(whole)


@pytest.mark.parametrize(("steps", "rate"), [(512, 0.0025), (0, 0.01)])
def test_an_agent_saved_again_keeps_its_place_in_the_schedule(steps, rate, tmp_path):
    made = agent("ppo", tmp_path, *PARTS["ppo"], learning_rate=0.01)
    if steps:
        made.learn(128)
        made.learn(steps)
    folder = made.save(tmp_path / "first", evaluate=0)
    made.close()
    again = minding.load(folder, progress=False).save(tmp_path / "second", evaluate=0)
    assert (again / "learner").is_dir()
    loaded = minding.load(again, progress=False)
    loaded.learn(128)
    assert rates_of(loaded) == pytest.approx([rate])
    loaded.close()


@pytest.mark.shared_graphs
def test_a_loaded_agent_explores_as_little_as_when_it_was_saved(tmp_path):
    made = agent("dqn", tmp_path, *PARTS["dqn"], "policy.other.eps.decay=1000", "policy.other.eps.end=0.1")
    steps = made.learn(500).env_step
    folder = made.save(tmp_path / "saved", evaluate=0)
    made.close()
    loaded = minding.load(minding.load(folder, progress=False).save(tmp_path / "again", evaluate=0), progress=False)
    loaded.learn(8)
    assert loaded.cfg.policy.other.eps.start == pytest.approx(1 - 0.9 * steps / 1000)
    loaded.close()


def test_a_loaded_agent_takes_another_learning_rate(pole, tmp_path):
    folder = pole.save(tmp_path / "saved", evaluate=0)
    loaded = minding.load(folder, progress=False, learning_rate=1e-4)
    loaded.cfg.run.out_dir = str(tmp_path)
    loaded.learn(128)
    assert (loaded.cfg.policy.learn.anneal_lr, loaded.cfg.policy.learn.learning_rate) == (True, 1e-4)
    loaded.close()
    with pytest.raises(ConfigError, match=r"policy\.learn\.learning_rate=2\.0: expected a number in \(0, 1\]"):
        minding.load(folder, learning_rate=2.0)
    with pytest.raises(ConfigError, match=r"learn\(anneal=1\): expected True, False or None"):
        pole.learn(1, anneal=1)


def test_a_folder_without_learning_is_smaller_and_acts_alike(pole, tmp_path):
    whole, small = pole.save(tmp_path / "whole", evaluate=0), pole.save(tmp_path / "small", evaluate=0, learner=False)
    assert not (small / "learner").exists()
    shutil.rmtree(whole / "learner")
    obs = np.random.default_rng(1).normal(size=(5, 4))
    for folder in (whole, small):
        assert np.array_equal(minding.load(folder, progress=False).predict(obs), pole.predict(obs))


def test_an_earlier_checkpoint_continues_from_there(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="minding")
    settings = [*PARTS["ppo"], "run.ckpt_freq=1", "policy.learn.n_epoch=1", "policy.learn.n_minibatch=1"]
    made = agent("ppo", tmp_path, *settings)
    made.learn(512)
    made.close()
    newest = newest_checkpoint(made.run_dir / "ckpt")
    earlier = sorted((made.run_dir / "ckpt").glob("iter_*"), key=lambda each: int(each.name[5:]))[-2]
    assert earlier != newest
    again = minding.load(earlier, progress=False)
    summary = again.learn(128)
    assert f"resumed {earlier} at env_step 384" in caplog.text
    assert (summary.env_step, summary.train_iter) == (512, 4)
    again.close()


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch):
    made = agent("ppo", tmp_path, *PARTS["ppo"])
    with monkeypatch.context() as broken:
        broken.setattr(session, "build", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.learn(128)
    assert list(tmp_path.iterdir()) == []
    assert made.learn(128).env_step == 128
    made.close()


def test_the_home_folder_is_meant_by_its_sign(pole, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(pole.run_dir.parent)
    saved = pole.save("~/saved", evaluate=0)
    assert saved == tmp_path / "saved"
    assert minding.load("~/saved").predict(OBS) == pole.predict(OBS)
    assert compile_run("ppo", ["env.env_id=CartPole-v1", "run.out_dir=~/runs"]).run.out_dir == str(tmp_path / "runs")
    assert command(["train", "~/saved/config.yaml", "--out=~/runs", "run.max_env_step=0"]) == 2
    assert "run.max_env_step=0" in capfd.readouterr().err
    for args in (
        ["eval", "~/saved", "--episodes=1"],
        ["record", "~/saved", "--out=~/films/one.gif"],
        ["data", "record", "~/saved", "--steps=20", "--out=~/data"],
    ):
        assert command(args) == 0, args
    assert {"saved", "films", "data"} <= {each.name for each in tmp_path.iterdir()}
    assert not list(pole.run_dir.parent.glob("~*"))
    assert capfd.readouterr().err == ""
    assert command(["record", "~/saved", "--out=~/films/one.gif"]) == 0
    assert f"video: {tmp_path}/films/one.gif, in place of an earlier file" in capfd.readouterr().out


@pytest.mark.parametrize("call", ["__init__", "step"])
def test_a_run_stays_in_one_folder_if_its_environment_moves(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kwargs = [f"env.env_kwargs.moves={call}", f"env.env_kwargs.to={tmp_path / 'away'}"]
    for number in ("", "-1"):
        made = minding.Agent("ppo", Wanderer, settings=["run.out_dir=runs", *SMALL[:3], *FEW, *kwargs], n_sample=64)
        made.learn(64)
        assert made.run_dir == tmp_path / "runs" / f"test-agent-Wanderer_ppo{number}"
        made.learn(64)
        assert {"ckpt", "metrics.csv", "summary.json"} <= {each.name for each in made.run_dir.iterdir()}
        made.close()
    assert os.getcwd() == str(tmp_path / "away")
    assert made.save("saved", evaluate=1) == tmp_path / "saved"
    assert minding.load("saved", trust=True).evaluate(1).lengths == (10,)
    again = minding.load("runs/test-agent-Wanderer_ppo", trust=True)
    assert again.learn(64).env_step == 192
    again.close()
    assert os.listdir(tmp_path / "away") == []
    # The folder that the program itself makes current is meant.
    monkeypatch.chdir(tmp_path / "runs")
    assert minding.load("../saved", trust=True).save("other", evaluate=0) == tmp_path / "runs" / "other"


def test_commands_stay_in_one_folder_if_a_module_moves(tmp_path, monkeypatch, capfd):
    lines = ["import os", "os.makedirs('assets', exist_ok=True)", "os.chdir('assets')"]
    lines += ["from minding.envs.games.memory_games import TMaze", "Moving = TMaze"]
    (tmp_path / "moving_module.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)
    length = ["run.max_env_step=128", "policy.collect.n_sample=64", *FEW, *SMALL[:6]]
    assert command(["train", "ppo", "--env=moving_module:Moving", *length, "--no-progress"]) == 0
    assert os.getcwd() == str(tmp_path / "assets")
    assert "in runs/moving-module-Moving_ppo" in capfd.readouterr().out
    run = "runs/moving-module-Moving_ppo"
    assert command(["eval", run, "--episodes=1", "--trust"]) == 0
    assert command(["data", "record", run, "--steps=20", "--out=recorded", "--trust"]) == 0
    learned = ["policy.other.data=recorded", "run.max_train_iter=8", "policy.learn.batch_size=8", *SMALL]
    assert command(["train", "bc", "--env=moving_module:Moving", *learned, "--no-progress"]) == 0
    made = {each.name for each in tmp_path.iterdir()} - {"__pycache__"}
    assert made == {"assets", "moving_module.py", "recorded", "runs"}
    assert os.listdir(tmp_path / "assets") == []


def test_a_saved_folder_that_was_changed_is_refused(pole, tmp_path):
    folder = pole.save(tmp_path / "saved", evaluate=0)
    for name, change in (
        ("policy.safetensors", lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]),
        ("policy.safetensors", lambda data: b""),
        ("config.yaml", lambda data: data.replace(b"activation: tanh", b"activation: relu")),
        ("checksums.json", lambda data: b"[]"),
        ("learner/manifest.json", lambda data: data.replace(b'"clock"', b'"clocK"')),
    ):
        whole = (folder / name).read_bytes()
        changed = change(whole)
        assert changed != whole
        (folder / name).write_bytes(changed)
        for use in (minding.load, lambda path: training.evaluate(path, 1)):
            with pytest.raises(CheckpointError, match=name):
                use(folder)
        (folder / name).write_bytes(whole)
    (folder / "checksums.json").unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        minding.load(folder)


@pytest.mark.skipif(
    not (kernels.compiled() and hasattr(ctypes.CDLL(str(kernels.LIBRARY)), "note_sender")),
    reason="the kernels are not compiled, or from older sources",
)
@pytest.mark.shared_graphs
@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_after_updates_leaves_a_run_that_continues(number, error, tmp_path, caplog):
    made, steps = agent("ppo", tmp_path, *PARTS["ppo"]), []

    def interrupt(ctx):
        steps.append(ctx.clock)
        if len(steps) == 2:
            # From another process, as Ctrl-C comes: MindSpore has run graphs, which took SIGINT for themselves.
            subprocess.run(["kill", f"-{int(number)}", str(os.getpid())], check=True)

    with pytest.raises(error):
        made.learn(512, total=512, use=interrupt)
    assert f"ended by {number.name}: the run is saved" in caplog.text
    assert made.learn(total=512).env_step == 512
    assert steps == [128, 256, 384, 512]
    made.close()


def test_environments_are_given_as_what_a_program_has():
    def nowhere():
        return Corridor()

    ids = {
        "class": minding.Agent("ppo", Corridor).cfg.env.env_id,
        "function": minding.Agent("ppo", nowhere).cfg.env.env_id,
        "again": minding.Agent("ppo", nowhere).cfg.env.env_id,
        "made": minding.Agent("ppo", gymnasium.make("CartPole-v1", sutton_barto_reward=True)).cfg.env,
    }
    assert ids["class"] == f"{__name__}:Corridor"
    assert ids["function"] == ids["again"] == "python/nowhere"
    assert (ids["made"].env_id, ids["made"].env_kwargs) == ("CartPole-v1", {"sutton_barto_reward": True})
    limited = minding.Agent("ppo", gymnasium.make("CartPole-v1", max_episode_steps=7))
    assert limited.cfg.env.spec.max_episode_steps == 7


def vector(num_envs=4, **kwargs):
    return gymnasium.make_vec("CartPole-v1", num_envs, **kwargs)


def test_a_vector_environment_is_collected_from_as_it_is(tmp_path, monkeypatch):
    env = vector(sutton_barto_reward=True)
    steps, step = [], env.step
    monkeypatch.setattr(env, "step", lambda action: (steps.append(len(action)), step(action))[1])
    keys = {"n_sample": 64, "settings": [f"run.out_dir={tmp_path}", *SMALL[:1], *FEW], "progress": False}
    made, other = minding.Agent("ppo", env, **keys), minding.Agent("ppo", env, **keys)
    assert made.cfg.env.collector_env_num == 4
    assert made.learn(128).env_step >= 128
    assert set(steps) == {4}
    assert made.make_env().spec.kwargs["sutton_barto_reward"]
    with pytest.raises(ConfigError, match="close the other agent"):
        other.learn(64)
    made.close()
    env.reset()
    assert other.learn(64).env_step >= 64
    other.close()


def test_runs_are_compiled_from_a_name_and_an_environment():
    cfg = compile_run("ppo", ["seed=3"], env_fn=Corridor)
    assert (cfg.seed, cfg.env.env_id) == (3, f"{__name__}:Corridor")
    cfg = compile_run("cartpole_ppo", env_fn=lambda: Corridor())
    for make in (make_collector_env, make_evaluator_env):
        made = [make(cfg), make(compile_run("cartpole_ppo"), env_fn=Corridor)]
        assert [each.reset().shape[1:] for each in made] == [(1,), (1,)]
        for each in made:
            each.close()
    with pytest.raises(ConfigError, match="expected a class or function that makes one"):
        compile_run("ppo", env_fn=Corridor())


@pytest.mark.shared_graphs
def test_recorded_data_take_the_place_of_an_environment(tmp_path):
    data = recorded("Pendulum-v1")
    short = {"batch_size": 32, "hidden": [8], "settings": [f"run.out_dir={tmp_path}", *SMALL[:2]], "progress": False}
    alone = minding.Agent("iql", dataset=data, **short)
    assert alone.cfg.env.env_id == "data"
    assert alone.learn(32).train_iter == 32
    assert alone.predict(np.zeros(3, np.float32)).shape == (1,)
    judged = minding.Agent("iql", "Pendulum-v1", dataset=str(data), **short)
    assert np.isfinite(judged.learn(32).eval_return)
    for made in (alone, judged):
        made.close()
    with pytest.raises(ConfigError, match="save_dataset"):
        minding.Agent("iql", dataset=load_dataset(data))
    with pytest.raises(ConfigError, match=r"unknown key 'policy\.other\.data'"):
        minding.Agent("ppo", "CartPole-v1", dataset=data)


def test_the_chain_is_shown(pole):
    assert "StepCollector" in str(pole)
    assert repr(pole) == "Agent('ppo', 'CartPole-v1', seed=0)"
    assert "gae_estimator" in str(minding.Agent("ppo", "CartPole-v1"))


def test_a_callback_with_an_unreadable_state_is_a_mistake(tmp_path, caplog):
    made = agent("ppo", tmp_path, *PARTS["ppo"])
    made.learn(128, use=Stopper)
    made.close()

    class Misread(Stopper):
        def load_state_dict(self, state):
            self.count = state["number"]

    Misread.__name__ = "Stopper"
    again = minding.load(made.run_dir, progress=False)
    with pytest.raises(KeyError, match="number") as raised:
        again.learn(128, use=Misread)
    assert f"{__file__}:" in raised.value.__notes__[0]
    assert "damaged" not in caplog.text
    assert again.learn(128, use=Stopper).env_step == 256
    again.close()


def test_a_traced_agent_has_the_picture_of_a_traced_command(tmp_path):
    made = agent("ppo", tmp_path, *PARTS["ppo"], "run.trace=true")
    made.learn(128)
    first = (made.run_dir / "trace.png").read_bytes()
    made.learn(256)
    made.close()
    assert {"trace.json", "trace.png"} <= {each.name for each in made.run_dir.iterdir()}
    # Of all that it has learned so far.
    assert (made.run_dir / "trace.png").read_bytes() != first
    names = {event.get("name") for event in json.loads((made.run_dir / "trace.json").read_text())["traceEvents"]}
    assert "StepCollector" in names
