"""A resumed run is bit-for-bit identical to an uninterrupted one.

A kill is the moment at which the run folder is copied: what `kill -9` leaves behind is what is on the disk. The copy is
resumed in new objects and must end as the run does that went on. The runs of `TWICE` and of `test_kill` compile their
updates; the others run the Python code of theirs, see `compiled_once`.
"""

import math
import multiprocessing
import shutil

import numpy as np
import pytest
from of_algorithms import SMALL, constant, different, environment, has, is_offline, length, recorded, short_run

from benchmarks.fingerprint import fingerprint, tables_fingerprint
from minding import training
from minding.configs import PRESETS, compile_run, load_preset
from minding.configs.chains import get_chain
from minding.engine import Config, Task
from minding.engine.checkpoint import list_checkpoints, load_checkpoint, newest_checkpoint, use_newest
from minding.engine.config.config import run_length
from minding.engine.errors import MissingExtraError
from minding.engine.run import checkpoints
from minding.engine.run.run_dir import RunDir
from minding.policies import ALGORITHMS, get_algorithm
from minding.training import session

CASES = {
    case: (algorithm, *what)
    for algorithm in ALGORITHMS
    for case, what in constant(algorithm, "RESUMES", {algorithm: (environment(algorithm), ())}).items()
}
TWICE = ("PPO on a vector environment", "DQN, n-step")
"""With rollouts and with a replay buffer; these runs are also killed between two iterations."""


def settings(algorithm, env_id, extra, tmp_path):
    user = Config(env={"env_id": env_id}, policy={"type": algorithm})
    return compile_run(user, [*SMALL, *short_run(algorithm), *extra, f"run.out_dir={tmp_path}", "exp_name=run"])


class Killed(Exception):
    """Ends a run that is of no more use; its own end happens after its folder was copied."""


@pytest.fixture
def photographed(monkeypatch):
    """Makes the next run copy its folder at a moment: ``photographed(moment, folder, copy, goes_on)``.

    A moment is (iteration, number of the middleware before which the copy is made). A run that does not go on raises
    `Killed` then.
    """
    build = training.build

    def prepare(moment, folder=None, copy=None, goes_on=True):
        def build_watched(task, cfg, given=None):
            policy = build(task, cfg)
            numbers = iter(range(100))

            def watch(middleware):
                number = next(numbers)

                def call(ctx):
                    if (ctx.total_step, number) == moment:
                        shutil.copytree(folder, copy)
                        if not goes_on:
                            raise Killed
                    return middleware(ctx)

                return call

            task.use_wrapper(watch)
            return policy

        monkeypatch.setattr(session, "build", build_watched)

    yield prepare
    monkeypatch.undo()


def outcome(run_dir, summary):
    """Everything that must be the same: the last checkpoint, the metrics, the final evaluation."""
    state, manifest = load_checkpoint(newest_checkpoint(run_dir.checkpoints))
    return {
        **fingerprint(state),
        **tables_fingerprint(run_dir),
        "checkpoints": [path.name for path in list_checkpoints(run_dir.checkpoints)],
        "guarantee": manifest["guarantee"],
        "final evaluation": (summary.eval_return, summary.eval_std, summary.env_step, summary.train_iter),
    }


def check_exact_resume(cfg, tmp_path, photographed, *moments):
    """Compares the run that goes on with one that is killed at each moment in turn, and resumed from what was left."""
    run_dir, left = RunDir.create(cfg), RunDir(tmp_path / "left 0")
    photographed(moments[0], run_dir.path, left.path)
    expected = outcome(run_dir, training.train(cfg, run_dir, progress=False))
    assert expected["guarantee"] == "exact"
    for number, moment in enumerate(moments[1:], 1):
        following = RunDir(tmp_path / f"left {number}")
        photographed(moment, left.path, following.path, goes_on=False)
        with pytest.raises(Killed):
            training.train(cfg, left, progress=False, resume="latest")
        left = following
    photographed(None)
    found = outcome(left, training.train(cfg, left, progress=False, resume="latest"))
    assert different(found, expected) == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name != TWICE[0]) + [pytest.mark.eager] * (name not in TWICE))
        for name in CASES
    ],
)
def test_a_killed_run_ends_as_if_it_went_on(name, tmp_path, photographed):
    cfg = settings(*CASES[name], tmp_path)
    # Iterations after the last checkpoint: before the first middleware, and before one in the middle.
    replays = has(cfg.policy.type, "other.buffer_size") and not is_offline(cfg.policy.type)
    late = 9 if replays else 5
    earlier = [(late - 2, 0)] if name in TWICE else []
    check_exact_resume(cfg, tmp_path, photographed, *earlier, (late, 3))


def test_a_run_with_only_its_best_checkpoint_continues(tmp_path, photographed, monkeypatch):
    cfg = settings(*CASES[TWICE[1]], tmp_path)
    cfg.run.ckpt_freq, cfg.policy.eval.freq = 10_000, 40
    cfg.policy.learn.update_per_collect = 2
    run_dir, left = RunDir.create(cfg), RunDir(tmp_path / "left")
    photographed((7, 3), run_dir.path, left.path)
    expected = outcome(run_dir, training.train(cfg, run_dir, progress=False))
    photographed(None)
    assert list_checkpoints(left.checkpoints) == []
    best = newest_checkpoint(left.checkpoints)
    _, manifest = load_checkpoint(best)
    assert (best.name, 0 < manifest["env_step"] < 7 * cfg.policy.collect.n_sample) == ("best", True)
    resumed = []

    def watched(folder, use):
        resumed.append(use_newest(folder, use))
        return resumed[0]

    monkeypatch.setattr(checkpoints, "use_newest", watched)
    assert outcome(left, training.train(cfg, left, progress=False, resume="latest")) == expected
    assert [found.path for found in resumed] == [best]


SHORT_ROLLOUTS = ("run.max_env_step=1280", "run.metrics_freq=350", "policy.eval.freq=500")
SHORT_REPLAY = (
    "run.max_env_step=800",
    "run.metrics_freq=100",
    "policy.collect.n_sample=32",
    "policy.learn.update_per_collect=1",
    "policy.learn.warmup=128",
    "policy.eval.freq=200",
    "policy.other.buffer_size=350",
)

LONG_EPISODES = ("HalfCheetah-v5", "Hopper-v5", "ALE/Pong-v5", "dm_control/walker-walk-v0")
SLOW = ("ALE/Pong-v5", "dm_control/walker-walk-v0", "MiniGrid-DoorKey-5x5-v0", "MinAtar/Breakout-v1")


def short_preset(name, tmp_path):
    user = load_preset(name)
    extra = ["run.final_episodes=2", "policy.eval.n_episode=3", "env.evaluator_env_num=2", "exp_name=run"]
    # What is restored is the environment; updates are as quick as they can be.
    extra.append("policy.model.hidden=[16]")
    algorithm = user.policy.type
    if is_offline(algorithm):
        return compile_run(
            user, [*extra, *short_run(algorithm), *length(algorithm, 60, user.env.env_id), f"run.out_dir={tmp_path}"]
        )
    extra += SHORT_REPLAY if has(algorithm, "other.buffer_size") else SHORT_ROLLOUTS
    if user.policy.get("other", {}).get("data"):
        extra.append(f"policy.other.data={recorded(user.env.env_id)}")
    if has(algorithm, "collect.random_steps"):
        extra.append("policy.collect.random_steps=50")
    if has(algorithm, "learn.n_minibatch"):
        extra += ["policy.collect.n_sample=256", "policy.learn.n_epoch=1", "policy.learn.n_minibatch=1"]
    if user.env.env_id in ("minding/TicTacToe-v0", "minding/ConnectFour-v0"):
        extra.append("env.collector_env_num=8")
    if get_algorithm(algorithm).chain == "episode_replay":
        # Two episodes of each environment have to fit the buffer.
        extra += ["env.collector_env_num=4", "env.max_episode_steps=25", "policy.learn.batch_size=8"]
    if user.env.env_id in LONG_EPISODES:
        extra.append("env.max_episode_steps=150")
    if user.env.env_id in SLOW:
        extra += ["run.max_env_step=512", "policy.collect.n_sample=32", "policy.model.cnn_dim=16"]
    if user.env.env_id == "ALE/Pong-v5":
        # Each seed loads the game again.
        extra += ["policy.model.cnn=[[4, 8, 8]]", "env.collector_env_num=2"]
    try:
        cfg = compile_run(user, [*extra, f"run.out_dir={tmp_path}"])
    except MissingExtraError as error:
        pytest.skip(str(error))
    updates = math.prod(cfg.policy.learn.get(key, 1) for key in ("n_epoch", "n_minibatch", "update_per_collect"))
    # So that a kill loses some iterations.
    cfg.run.ckpt_freq = updates * max(2, cfg.run.max_env_step // cfg.policy.collect.n_sample // 10)
    return cfg


# MuJoCo's are alike, those of mpe2 are, of which MADDPG's takes long, and so are classic control and board games.
COVERED = {
    *("Hopper-v5", "Walker2d-v5", "Ant-v5", "mpe2/simple_tag_v3", "Acrobot-v1", "MountainCar-v0"),
    *("minding/TicTacToe-v0", "minding.envs.games.matrix_game:MatrixGame"),
    *(env_id for _, env_id, _ in CASES.values()),
}
# Runs without a replay buffer are quicker, and take precedence.
QUICK_LAST = sorted(PRESETS, key=lambda name: not has(load_preset(name).policy.type, "other.buffer_size"))
BY_ENVIRONMENT = {env_id: name for name in QUICK_LAST if (env_id := load_preset(name).env.env_id) not in COVERED}
"""One preset for each environment that the cases above, which are about algorithms, do not have."""
OTHERS = [name for name in PRESETS if name not in BY_ENVIRONMENT.values()]


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("name", BY_ENVIRONMENT.values())
def test_a_preset_of_each_environment_resumes_exactly(name, tmp_path, photographed, monkeypatch):
    # MuJoCo writes a log into the current folder.
    monkeypatch.chdir(tmp_path)
    cfg = short_preset(name, tmp_path)
    rng = np.random.default_rng(PRESETS.index(name))
    iterations = run_length(cfg).steps // cfg.policy.collect.get("n_sample", 1)
    moment = int(rng.integers(iterations // 2, iterations)), int(rng.integers(4))
    check_exact_resume(cfg, tmp_path, photographed, moment)


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_preset_builds_a_policy_and_a_chain(name, tmp_path):
    cfg, task = short_preset(name, tmp_path), Task()
    with task.start(ctx=get_chain(cfg.chain).context()):
        training.build(task, cfg)
        task.run(max_step=0)


def kill_a_collector(ctx):
    if ctx.total_step == 11:
        next(child for child in multiprocessing.active_children() if "collector" in child.name).kill()


@pytest.mark.slow
@pytest.mark.shared_graphs
def test_self_play_in_lanes_resumes_exactly_with_its_pool(tmp_path, photographed, caplog):
    lanes = ["lanes.async_mode=true", "lanes.max_staleness=0", "lanes.shards=2"]
    often = ["pool.freq=2", "pool.last=2", "league.size=3", "run.ckpt_freq=20", "run.max_step=13"]
    small = [
        "policy.model.hidden=[8]",
        "policy.collect.n_sample=400",
        "policy.learn.n_epoch=1",
        "run.loggers=[]",
        "run.metrics_freq=400",
    ]
    few = ["policy.eval.freq=1000000", "run.final_episodes=2"]
    cfg = compile_run("duel_ppo", [*lanes, *often, *small, *few, f"run.out_dir={tmp_path}", "exp_name=run"])
    run_dir, left = RunDir.create(cfg), RunDir(tmp_path / "left")
    photographed((9, 2), run_dir.path, left.path)
    expected = outcome(run_dir, training.train(cfg, run_dir, progress=False))
    assert expected["guarantee"] == "exact"
    photographed(None)
    found = outcome(left, training.train(cfg, left, progress=False, resume="latest", use=[kill_a_collector]))
    assert " ended with exit code -9; it is started again" in caplog.text
    assert different(found, expected) == []
    # The same versions, of which more than the newest are in play.
    pools = [{path.name: path.read_bytes() for path in each.models.iterdir()} for each in (run_dir, left)]
    assert pools[0] == pools[1]
    assert len(pools[0]) > 3
