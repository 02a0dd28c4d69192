"""Runs beside each other."""

import json

from run_kit import FIGURES
from run_kit import make_run as made_run

from minding.cli import run
from minding.engine import OnlineRLContext
from minding.engine.run.comparison import compare_runs, differing_settings
from minding.engine.run.status import StatusFile


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
        {"seed": 1, "env.env_kwargs.size": 3, "policy.type": "ppo"},
        {"seed": 2, "env.env_kwargs": {}, "policy.type": "dqn"},
    ]
    # Of one algorithm, a setting that only one has is a difference.
    assert differing_settings([ppo, {**ppo, "policy": {"type": "ppo", "learn": {"gamma": 0.9}}}]) == [
        {"policy.learn.a": 1},
        {},
    ]
    # Of several algorithms, what differs among those that have a setting stays.
    other = {**ppo, "policy": {"type": "ppo", "learn": {"gamma": 0.9, "a": 2}}}
    assert [each.get("policy.learn.a") for each in differing_settings([ppo, other, dqn])] == [1, 2, None]


def test_configurations_are_compared_over_their_seeds(tmp_path, capsys, caplog):
    def seed(name, number, value, gamma):
        figures = {**FIGURES, "eval_return": value, "eval_std": 1.5, "n_eval_episodes": 100}
        rows = "env_step,eval/return_mean\n1024,25.0\n"
        return made_run(
            tmp_path, name, figures=figures, seed=number, policy={"learn": {"gamma": gamma}}, metrics=rows
        ).path

    runs = [seed(f"a{number}", number, value, 0.9) for number, value in enumerate((10.0, 20.0, 60.0))]
    runs += [seed("b0", 0, 40.0, 0.99), seed("b1", 1, 50.0, 0.99), seed("b1-again", 1, 52.0, 0.99)]
    runs += [seed(f"c{number}", number, value, 0.95) for number, value in enumerate((15.0, 20.0, 20.0))]
    runs.append(seed("d0", 0, 5.0, 0.8))
    # The first is given twice, and counts once.
    assert run(["compare", *map(str, runs), f"{runs[0]}/", "--scores", str(tmp_path / "scores.json")]) == 0
    out = capsys.readouterr().out
    assert out.count("a0  ") == 1
    assert caplog.messages == [f"left out over seeds and in scores: {runs[4]}: a later run has its settings and seed 1"]
    over_seeds, improvement, profile = out.partition("Over seeds")[2].split("\n\n")
    # Of three seeds, the ends of the interval are the lowest and the highest; two have none, and one has no row.
    span = ["30.0", "[10.0,", "60.0]", "(range)"]
    assert [row.split() for row in over_seeds.splitlines()[2:]] == [
        ["a2", "and", "2", "more", "3", *span, *span],
        ["b1-again", "and", "1", "more", "2", "46.0", "46.0"],
        ["c1", "and", "2", "more", "3", *2 * ["18.3", "[15.0,", "20.0]", "(range)"]],
    ]
    # Of nine pairs four are won, and two are ties.
    assert "a2 and 2 more  c1 and 2 more  0.56 [0.00, 1.00]" in improvement
    rows = [row.split() for row in profile.splitlines()]
    assert rows[1] == ["runs", "10.0", "20.0", "30.0", "40.0", "50.0"]
    assert rows[2][4:] == ["67%", "33%", "33%", "33%", "33%"]
    table = json.loads((tmp_path / "scores.json").read_text())["minding"]["CartPole-v1"]
    assert list(table) == [f"ppo, policy.learn.gamma={gamma}" for gamma in (0.9, 0.99, 0.95, 0.8)]
    assert table["ppo, policy.learn.gamma=0.99"]["seed_1"] == {
        "step_0": {"step_count": 1024, "mean_episode_return": [25.0]},
        "absolute_metrics": {"mean_episode_return": [52.0]},
    }


def test_only_runs_of_one_environment_differ_in_settings(tmp_path):
    runs = [
        made_run(tmp_path, "a", policy={"learn": {"gamma": 0.9}}),
        made_run(tmp_path, "b", policy={"learn": {"gamma": 0.8}}),
        made_run(tmp_path, "c", env_id="Acrobot-v1", seed=3, policy={"type": "dqn", "learn": {"tau": 1}}),
    ]
    assert [each.settings for each in compare_runs([each.path for each in runs])] == [
        {"policy.type": "ppo", "policy.learn.gamma": 0.9},
        {"policy.type": "ppo", "policy.learn.gamma": 0.8},
        {"policy.type": "dqn"},
    ]


def test_a_chain_in_a_script_is_compared_by_its_last_evaluation(tmp_path, capsys):
    rows = (
        "env_step,eval/return_mean,eval/return_std,time/seconds\n"
        "1000,20.0,1.0,1.5\n1900,,,2.0\n2000,30.0,4.0,2.5\n2048,,,3.5\n"
    )
    made = [made_run(tmp_path, name, metrics=rows, policy={"eval": {"n_episode": 7}}) for name in ("end", "cut", "now")]
    for each, (state, reason) in zip(made, [("ended", "max_env_step"), ("ended", "SIGINT"), ("running", "")]):
        StatusFile(each.status).write(OnlineRLContext(), 3000, [], state, reason)
    end, cut, now = compare_runs([each.path for each in made])
    assert (end.evaluation, end.on_the_way, end.ended_by) == ((30.0, 4.0, 7), True, "max_env_step")
    assert {(each.unit, each.steps, each.seconds) for each in (end, cut, now)} == {("env_step", 2048, 3.5)}
    # Of a run that goes on, or will, no evaluation is the last.
    assert [(each.evaluation, each.ended_by) for each in (cut, now)] == [(None, "SIGINT"), (None, "running")]
    assert run(["compare", str(end.path)]) == 0
    assert "7, on the way" in capsys.readouterr().out


def test_seeds_are_compared_and_damaged_figures_left_out(tmp_path):
    folder = tmp_path / "some-seeds"
    paths = [make_run(folder, f"seed_{seed}", 1.0) for seed in (0, 1)]
    (folder / "settings.yaml").write_text("seed: 0\n")
    (paths[1] / "summary.json").write_text(json.dumps({"eval_return": float("nan"), "n_eval_episodes": 3}))
    assert [(each.path.name, each.evaluation is None) for each in compare_runs([folder])] == [
        ("seed_0", False),
        ("seed_1", True),
    ]
