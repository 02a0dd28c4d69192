"""The table of MuJoCo: both definitions of a score by numbers, and what counts as measured."""

import json

import pytest

from proofs.mujoco_table import best_of_means, mujoco_table
from proofs.runs import Results


def row(seed, mean, returns, steps=(50_000, 100_000), **more):
    best = {"env_step": 50_000, "eval_mean": max(returns), "eval_episodes": 10}
    head = {"preset": "hopper_ppo", "seed": seed, "config_hash": f"{seed}", "settings_hash": "a"}
    curve = {"env_step": list(steps), "eval_return": list(returns)}
    return {**head, "eval_mean": mean, "env_step": 1_001_472, "best": best, "curve": curve, **more}


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results").mkdir()
    scores = {"hopper_ppo": [2609.3, 700.8], "ant_sac": [5850.2]}
    source = {"source": "https://example.org", "note": "Two seeds.", "scores": scores}
    (tmp_path / "results" / "published.json").write_text(json.dumps({"mujoco": {"Others": source}}))
    return Results(tmp_path)


def lines(results, first):
    return [line for line in mujoco_table(results).splitlines() if line.startswith(first)]


def test_the_best_is_the_highest_mean_over_seeds_not_the_mean_of_the_highest():
    rows = [row(0, 0.0, [100.0, 300.0]), row(1, 0.0, [400.0, 240.0])]
    # The means over seeds are 250 and 270; the deviation at the second step is that of 300 and 240.
    assert best_of_means(rows) == (270.0, 30.0)
    assert best_of_means(rows[:1]) == (300.0, 0.0)
    # Steps that only one seed has are left out.
    assert best_of_means([row(0, 0.0, [1.0, 9.0]), row(1, 0.0, [3.0, 8.0], (50_000, 120_000))]) == (2.0, 1.0)


def test_shorter_runs_and_rows_without_their_best_evaluation_are_not_measured(results):
    results.append("learning", row(0, 1000.0, [900.0, 950.0], env_step=300_000))
    old = row(1, 1000.0, [900.0, 950.0])
    del old["best"]
    results.append("learning", old)
    assert "not measured" in lines(results, "| PPO | Hopper")[0]
