"""The logger of online chains."""

import contextlib
import csv
import math
import time

import pytest

from minding.engine import Config, OnlineRLContext, RunDir, Task
from minding.engine.data.references import References
from minding.engine.run.status import read_status
from minding.engine.types import EpisodeEnd
from minding.middleware.online_logger import online_logger
from minding.middleware.termination_checker import termination_checker


def config(tmp_path, **run):
    settings = {"max_env_step": 1000, "log_freq": 0.5, "metrics_freq": 10, "loggers": [], **run}
    return Config(exp_name="test", run={"out_dir": str(tmp_path), **settings})


def logger_in(tmp_path, **run):
    return online_logger(config(tmp_path, **run), tmp_path, progress=False)


def rows(tmp_path):
    with open(RunDir(tmp_path).metrics, newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.startswith("time/")} for row in csv.DictReader(file)
        ]


def iteration(number, **fields):
    """The context at the end of iteration `number` (from 1), each of 4 environment and 2 gradient steps."""
    metrics = {"loss": float(number)}
    return OnlineRLContext(
        total_step=number, env_step=4 * number, train_iter=2 * number, train_output=metrics, **fields
    )


def test_a_row_holds_the_means_since_the_row_before(tmp_path):
    logger = logger_in(tmp_path)
    for number in range(1, 6):
        logger(iteration(number))
    logger.close()
    assert [(row["env_step"], row["train_iter"], row["train/loss"]) for row in rows(tmp_path)] == [
        ("12", "6", "2.0"),
        ("20", "10", "4.5"),
    ]
    assert [row["train/updates_per_step"] for row in rows(tmp_path)] == ["0.5", "0.5"]


def test_all_episodes_beyond_a_tables_size_have_a_line(tmp_path):
    logger = logger_in(tmp_path)
    logger(iteration(1, episode_stats=[EpisodeEnd(0, float(number), 1) for number in range(12_345)]))
    logger.close()
    lines = csv.DictReader(RunDir(tmp_path).episodes.read_text().splitlines())
    assert [float(line["return"]) for line in lines] == list(range(12_345))


def test_references_normalize_evaluations(tmp_path):
    logger = online_logger(config(tmp_path), tmp_path, progress=False, references=References(-1200.0, -200.0))
    logger(iteration(1, eval_value=-450.0, last_eval_iter=2, last_eval_clock=4))
    logger.close()
    assert [(row["eval/return_mean"], row["eval/normalized"]) for row in rows(tmp_path)] == [("-450.0", "75.0")]


def test_rows_reach_the_file_once_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    logger = logger_in(tmp_path, metrics_freq=4)
    written = []
    for number in range(1, 5):
        # The third iteration ends a second after the others before it.
        now[0] += 0.99 if number == 3 else 0.01
        logger(iteration(number))
        written.append(len(rows(tmp_path)))
    assert written == [1, 1, 3, 3]
    logger.state_dict()
    assert len(rows(tmp_path)) == 4


def test_returns_are_means_over_the_last_hundred_episodes(tmp_path):
    logger = logger_in(tmp_path)
    logger(iteration(1, episode_stats=[EpisodeEnd(0, 1000.0, 9)]))
    logger(iteration(2, episode_stats=[EpisodeEnd(0, float(k), 10) for k in range(100)]))
    logger(iteration(3))
    logger.close()
    (row,) = rows(tmp_path)
    assert (row["collect/return_mean"], row["collect/length_mean"]) == ("49.5", "10.0")


def test_an_evaluation_has_a_row_at_the_step_it_measured(tmp_path):
    logger = logger_in(tmp_path)
    logger(iteration(1))
    logger(iteration(2))
    # Measured after the first iteration, and there only now.
    logger(iteration(3, eval_value=480.0, last_eval_iter=2, last_eval_clock=4))
    row = rows(tmp_path)[0]
    assert (row["env_step"], row["train_iter"], row["eval/return_mean"]) == ("4", "2", "480.0")


def test_an_evaluation_has_spread_and_mean_length(tmp_path):
    logger = logger_in(tmp_path)
    ends = [EpisodeEnd(0, value, length) for value, length in ((2.0, 10), (4.0, 20), (9.0, 60))]
    logger(iteration(1, eval_value=5.0, eval_output=ends, last_eval_iter=2, last_eval_clock=4))
    row = rows(tmp_path)[0]
    # (9 + 1 + 16) / 3, of which the root; as the summary of a run, over all episodes and not a sample of them.
    assert (float(row["eval/return_std"]), row["eval/length_mean"]) == (math.sqrt(26 / 3), "30.0")


def test_every_training_episode_has_a_line(tmp_path):
    logger = logger_in(tmp_path)
    logger(iteration(1, episode_stats=[EpisodeEnd(0, 1.5, 3), EpisodeEnd(1, -2.0, 4)]))
    logger(iteration(2, episode_stats=[]))
    logger(iteration(3, episode_stats=[EpisodeEnd(1, 8.0, 5)]))
    logger.close()
    lines = list(csv.reader(RunDir(tmp_path).episodes.read_text().splitlines()))
    assert [line[:3] for line in lines] == [
        ["env_step", "return", "length"],
        ["4", "1.5", "3"],
        ["4", "-2.0", "4"],
        ["12", "8.0", "5"],
    ]
    assert lines[0][3:] == ["time/seconds"]
    assert 0.0 <= float(lines[1][3]) <= float(lines[3][3]) < 60.0


def test_policy_lag_is_written_as_least_mean_and_most(tmp_path):
    logger = logger_in(tmp_path)
    for number, lag in ((1, 0), (2, 2), (3, 1)):
        logger(iteration(number, policy_lag={"min": lag, "mean": lag, "max": lag}))
    row = rows(tmp_path)[0]
    assert [row[f"policy_lag/{name}"] for name in ("min", "mean", "max")] == ["0.0", "1.0", "2.0"]
    logger(iteration(5, policy_lag={"min": 1, "mean": 1, "max": 1}))
    logger.close()
    assert rows(tmp_path)[1]["policy_lag/max"] == "1.0"


def test_each_row_is_an_event_in_the_iteration_that_completes_it(tmp_path):
    task, heard, told = Task(), [], []
    with task.start(ctx=OnlineRLContext()):
        task.on("metrics", lambda row, clock: heard.append((task.ctx.total_step, clock, row)))
        task.use(lambda ctx: vars(ctx).update(env_step=ctx.env_step + 4, train_output={"loss": 1.0}))
        task.use(online_logger(config(tmp_path), tmp_path, progress=False, task=task))
        # What a handler does to its row stays there.
        task.on("metrics", lambda row, clock: told.append(row.pop("train/loss")))
        task.run(max_step=6)
    # Rows where 10 and 20 are passed; that of the end is emitted once the last iteration is over.
    assert [(step, clock) for step, clock, _ in heard] == [(2, 12), (4, 20), (6, 24)]
    assert [row["env_step"] for row in rows(tmp_path)] == ["12", "20", "24"]
    assert [row["train/loss"] for row in rows(tmp_path)] == ["1.0", "1.0", "1.0"]
    assert (told, heard[0][2]["eval/return_mean"]) == ([1.0, 1.0, 1.0], None)


def test_the_status_of_a_chain_in_a_script_is_written(tmp_path):
    def status_after(step, end):
        task = Task()
        with contextlib.suppress(ValueError), task.start(ctx=OnlineRLContext()):
            task.use(step).use(termination_checker(max_env_step=8, task=task)).use(end)
            task.use(online_logger(config(tmp_path), tmp_path, total=8, progress=False, task=task)).run(max_step=9)
        found = read_status(tmp_path / "status.json")
        return found.state, found.reason, found.env_step, found.limit

    def move(ctx):
        ctx.env_step += 4
        seen.append(read_status(tmp_path / "status.json").state)

    class Fails:
        def __call__(self, ctx): ...

        def begin(self):
            raise ValueError("no device")

    def fails(ctx):
        raise ValueError("broken")

    seen = []
    assert status_after(move, lambda ctx: None) == ("ended", "max_env_step", 8, 8)
    assert status_after(move, fails) == ("failed", "ValueError: broken", 4, 8)
    assert status_after(move, Fails())[0] == "failed"
    assert seen == ["running"] * 3


@pytest.mark.parametrize(("opponent", "shown"), [("random", True), ("self:6", False)])
def test_returns_against_oneself_are_not_shown(opponent, shown, tmp_path, capsys):
    cfg = config(tmp_path)
    cfg.env = {"env_kwargs": {"opponent": opponent}}
    logger = online_logger(cfg, tmp_path, progress=True)
    logger(iteration(1, episode_stats=[EpisodeEnd(0, 0.0, 5)], eval_value=0.5, last_eval_value=0.5))
    logger.close()
    out = capsys.readouterr().out
    assert ("return 0.0" in out, "eval 0.5" in out) == (shown, True)


@pytest.mark.parametrize("names", ["a", "abcd"])
def test_a_win_rate_and_the_returns_of_agents_are_written(names, tmp_path, capsys):
    logger = online_logger(config(tmp_path, metrics_freq=4), tmp_path, progress=True)
    own = {f"return.{name}": 3.0 for name in names}
    ends = [EpisodeEnd(0, 1.0, 5, {"battle_won": won, **own}) for won in (1.0, 1.0, 0.0, 1.0)]
    logger(iteration(1, eval_value=1.0, eval_output=ends, last_eval_iter=2, last_eval_value=1.0, last_eval_clock=4))
    logger.close()
    shown = capsys.readouterr().out
    assert f"eval 1.0  battle_won 0.75  {'return.a 3.00  ' * (len(names) == 1)}length 5.00" in shown
    assert (rows(tmp_path)[0]["eval/battle_won"], rows(tmp_path)[0]["eval/return.a"]) == ("0.75", "3.0")
