"""Runs beside each other."""

import json

from fakes import refuses
from run_kit import FIGURES
from run_kit import make_run as made_run

from minding.cli import run
from minding.engine.errors import ConfigError
from minding.engine.run.comparison import compare_runs, differing_settings


def make_run(folder, name, value=None, metrics=None, **learn):
    figures = value and {**FIGURES, "eval_return": value, "eval_std": 1.5, "n_eval_episodes": 100}
    run, policy = {"log_freq": len(name)}, {"learn": learn}
    return made_run(folder, name, metrics=metrics, figures=figures, run=run, policy=policy).path


def test_the_best_comes_first_with_what_differs_and_nothing_else(tmp_path):
    rows = "env_step,loss\n1024,1.0\n1536,2.0\n"
    paths = [
        make_run(tmp_path, "a", 10.0, gamma=0.9, tau=0.1),
        make_run(tmp_path, "unfinished", None, rows, gamma=0.9, tau=0.1),
        make_run(tmp_path, "b", 30.0, gamma=0.99, tau=0.1),
    ]
    found = compare_runs(paths)
    assert [(each.path.name, each.evaluation, each.steps, each.seconds) for each in found] == [
        ("b", (30.0, 1.5, 100), 2048, 3.0),
        ("a", (10.0, 1.5, 100), 2048, 3.0),
        ("unfinished", None, 1536, None),
    ]
    assert [each.settings["policy.learn.gamma"] for each in found] == [0.99, 0.9, 0.9]
    assert {len(each.settings) for each in found} == {1}


def test_a_setting_is_compared_among_algorithms_that_have_it():
    ppo = {"seed": 1, "env": {"env_kwargs": {"size": 3}}, "policy": {"type": "ppo", "learn": {"gamma": 0.9, "a": 1}}}
    dqn = {"seed": 2, "env": {"env_kwargs": {}}, "policy": {"type": "dqn", "learn": {"gamma": 0.99, "b": 1}}}
    assert differing_settings([ppo, dqn]) == [
        {"seed": 1, "env.env_kwargs.size": 3, "policy.type": "ppo", "policy.learn.gamma": 0.9},
        {"seed": 2, "env.env_kwargs": {}, "policy.type": "dqn", "policy.learn.gamma": 0.99},
    ]
    # Of one algorithm, a setting that only one has is a difference.
    assert differing_settings([ppo, {**ppo, "policy": {"type": "ppo", "learn": {"gamma": 0.9}}}]) == [
        {"policy.learn.a": 1},
        {},
    ]
    # Of several algorithms, what differs among those that have a setting stays.
    other = {**ppo, "policy": {"type": "ppo", "learn": {"gamma": 0.9, "a": 2}}}
    assert [each.get("policy.learn.a") for each in differing_settings([ppo, other, dqn])] == [1, 2, None]


def test_the_command_prints_one_table(tmp_path, capsys, caplog):
    paths = [make_run(tmp_path, name, value, gamma=value / 100) for name, value in (("a", 10.0), ("b", 30.0))]
    assert run(["compare", *map(str, paths), str(tmp_path / "absent")]) == 0
    captured = capsys.readouterr()
    title, _, *rows = captured.out.splitlines()
    assert title == f"Runs in {tmp_path}, with the settings that differ:"
    end = ["±", "1.5", "100", "2,048", "3", "max_env_step"]
    assert [row.split() for row in rows] == [
        ["b", "30.0", *end],
        ["policy.learn.gamma=0.3"],
        ["a", "10.0", *end],
        ["policy.learn.gamma=0.1"],
    ]
    assert "left out: no run folder" in caplog.text


def test_a_second_table_has_a_row_per_configuration(tmp_path, capsys):
    def seed(name, number, value, gamma):
        figures = {**FIGURES, "eval_return": value, "eval_std": 1.5, "n_eval_episodes": 100}
        return made_run(tmp_path, name, figures=figures, seed=number, policy={"learn": {"gamma": gamma}}).path

    runs = [seed(f"a{number}", number, value, 0.9) for number, value in enumerate((10.0, 20.0, 60.0))]
    runs += [seed("b0", 0, 40.0, 0.99), seed("b1", 1, 50.0, 0.99), seed("b1-again", 1, 52.0, 0.99)]
    runs.append(seed("c0", 0, 5.0, 0.8))
    assert run(["compare", *map(str, runs)]) == 0
    _, _, over_seeds = capsys.readouterr().out.partition("Over seeds:\n")
    # Of three seeds, the ends of the interval are the lowest and the highest; two have none, and one has no row.
    assert [row.split() for row in over_seeds.splitlines()[1:]] == [
        ["a2", "and", "2", "more", "3", "30.0", "10.0", "to", "60.0", "(range)"],
        ["b1-again", "and", "1", "more", "2", "46.0"],
    ]


def test_seeds_are_compared_and_damaged_figures_left_out(tmp_path):
    folder = tmp_path / "some-seeds"
    paths = [make_run(folder, f"seed_{seed}", 1.0) for seed in (0, 1)]
    (folder / "settings.yaml").write_text("seed: 0\n")
    (paths[1] / "summary.json").write_text(json.dumps({"eval_return": float("nan"), "n_eval_episodes": 3}))
    assert [(each.path.name, each.evaluation is None) for each in compare_runs([folder])] == [
        ("seed_0", False),
        ("seed_1", True),
    ]


def test_without_a_run_there_is_nothing_to_compare(tmp_path):
    absent = tmp_path / "absent"
    refuses(
        ConfigError,
        ("no run folder", lambda: compare_runs([absent])),
        ("none of these 2 folders", lambda: compare_runs([tmp_path, absent])),
    )
    assert run(["compare", str(absent)]) == 2
