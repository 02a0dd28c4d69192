"""Scores of self-play in curves, pictures and the summary."""

import pytest
from run_kit import make_run as made_run

from minding.cli import run
from minding.engine import Config, ConfigError, RunDir
from minding.engine.run.comparison import best_of, compare_runs
from minding.engine.run.curves import curves_of_run, learning_curves
from minding.engine.run.metrics import read_metrics
from minding.engine.run.run_summary import final_scores
from minding.engine.types import EpisodeEnd
from minding.training import Evaluation

HEADER = "env_step,eval/return_mean,collect/return_mean,eval/score_random,eval/score_uct_100\n"
FIGURES = {
    "unit": "env_step",
    "env_step": 400,
    "eval_return": 0.75,
    "eval_std": 0.4,
    "n_eval_episodes": 80,
    "eval_info": {"score_random": 1.0, "score_uct_100": 0.5},
}


OPPONENTS = {"n_episode": 50, "opponents": ["random", "uct:100"]}


def make_run(tmp_path, seed=0, scores=(0.9, 0.4), chain="self_play", metrics=None, **collect):
    random, uct = scores
    rows = f"100,0.5,0.1,0.8,0.2\n200,,0.2,,\n300,{(random + uct) / 2},0.3,{random},{uct}\n"
    return made_run(
        tmp_path,
        "four",
        metrics=HEADER + rows if metrics is None else metrics,
        figures=FIGURES,
        seed=seed,
        env_id="minding/ConnectFour-v0",
        run={"target": 0.7},
        policy={"type": "alphazero", "collect": collect, "eval": OPPONENTS},
        chain=chain,
    ).path


def test_games_against_oneself_are_no_curve(tmp_path):
    path = make_run(tmp_path, metrics="env_step,collect/return_mean\n100,0.1\n200,0.2\n")
    with pytest.raises(ConfigError, match="holds no returns yet"):
        learning_curves([path])
    run = RunDir.open(path)
    cfg = run.load_config()
    assert curves_of_run(cfg, read_metrics(run.metrics), {}) == []
    cfg.chain = "on_policy"
    assert len(curves_of_run(cfg, read_metrics(run.metrics), {})) == 1
    cfg.env.env_kwargs = {"opponent": "self"}
    assert curves_of_run(cfg, read_metrics(run.metrics), {}) == []
    assert len(learning_curves([make_run(tmp_path, chain="on_policy")])) == 1


def test_the_final_scores_have_an_interval_and_a_count(tmp_path):
    cfg = RunDir.open(make_run(tmp_path)).load_config()
    assert {name: str(score) for name, score in final_scores(cfg, FIGURES).items()} == {
        "random": "1.000 [0.912, 1.000], 95 % interval of 40 games",
        "uct:100": "0.500 [0.352, 0.648], 95 % interval of 40 games",
    }
    assert final_scores(cfg, {**FIGURES, "n_eval_episodes": 0}) == {}
    assert final_scores(cfg, {**FIGURES, "eval_info": {"score_random": "much"}}) == {}


def test_comparisons_and_pages_show_scores_and_plies(tmp_path, capsys):
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    other = Config(
        exp_name="other", seed=0, run={"out_dir": str(tmp_path)}, env={"env_id": "Pendulum-v1"}, policy={"type": "ppo"}
    )
    pendulum = RunDir.create(other)
    pendulum.write_summary({**FIGURES, "eval_return": -150.0, "eval_info": {}})
    compared = compare_runs([pendulum.path, *runs])
    assert [run.env_id for run in compared] == ["Pendulum-v1", *2 * ["minding/ConnectFour-v0"]]
    assert [list(run.scores) for run in compared] == [[], *2 * [["random", "uct:100"]]]
    # A run that is alone on its environment is the best of none.
    assert best_of(compared) == {"minding/ConnectFour-v0": compared[1]}
    assert run(["compare", str(pendulum.path), *map(str, runs)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "environment" in text
    assert "score 0.750" in text
    assert "400 plies" in text
    assert "against uct:100 0.500 [0.352, 0.648], 95 % interval of 40 games" in text
    page = tmp_path / "page.html"
    assert run(["report", str(pendulum.path), *map(str, runs), "-o", str(page)]) == 0
    assert f"3 runs\nthe best on minding/ConnectFour-v0: {runs[0]}" in capsys.readouterr().out
    seeds = [RunDir.create(Config(other, seed=seed)) for seed in (1, 2, 3)]
    for seed, made in enumerate(seeds):
        made.write_summary({**FIGURES, "eval_return": 100.0 * seed, "eval_info": {}})
    assert run(["report", *(str(each.path) for each in seeds), "-o", str(tmp_path / "seeds.html")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"{seeds[2].path} and 2 more 3 100.0 [0.0, 200.0] (range)" in text
    assert "the best" not in text
    html = page.read_text()
    assert "0.500 [0.352, 0.648]" in html
    assert "400 plies" in html
    assert "-150.0 ± " in html


def test_an_evaluation_of_games_has_a_score_per_opponent():
    cfg = Config(chain="self_play", policy={"eval": {"opponents": ["random", "uct:100"]}})
    ends = [EpisodeEnd(n, 1.0, 9, {"score_random": 1.0}) for n in range(2)]
    ends += [EpisodeEnd(n, 0.5, 9, {"score_uct_100": 0.5}) for n in range(2)]
    found = Evaluation.of(ends, cfg)
    assert str(found) == (
        "score 0.750 over 4 games; against random 1.000 [0.342, 1.000], 95 % interval of 2 games; "
        "against uct:100 0.500 [0.095, 0.905], 95 % interval of 2 games"
    )
    assert found.interval == pytest.approx((0.300642, 0.954413), abs=1e-6)
