"""The proofs: what is run again, what is written down, and the tables made of it."""

import json
import shutil
from dataclasses import replace

import pytest

from benchmarks.pages import filled, lanes_table
from minding.configs.names import expectation
from proofs import pages as proof_pages
from proofs import team_benchmark
from proofs.run import parse_arguments, plan
from proofs.runs import LEARNING, ROOT, Job, Learning, Results, changed_since
from proofs.steadiness import after_target
from proofs.studies import STUDIES

PAGE = "before\n<!-- results:cartpole_ppo -->\nold\n<!-- /results -->\nafter\n"
JOB = Job("learning", "cartpole_ppo", 1, 100_000)


def record(seed, mean, settings="aaaaaaaaaaaa", config_hash="bbbbbbbbbbbb"):
    return {
        "preset": "cartpole_ppo",
        "seed": seed,
        "config_hash": config_hash,
        "settings_hash": settings,
        "command": f"minding train cartpole_ppo seed={seed}",
        "versions": {"python": "3.11.7", "mindspore": "2.10.0"},
        "eval_mean": mean,
        "eval_std": 2.5,
        "eval_episodes": 100,
        "env_step": 100_352,
        "train_iter": 1568,
        "seconds": 12.3,
        "curve": {"env_step": [1000, 100000], "eval_return": [20.0, mean]},
    }


@pytest.fixture
def results(tmp_path):
    (tmp_path / "ppo.md").write_text(PAGE)
    return Results(tmp_path)


def test_the_table_is_written_and_the_curve_drawn(results, tmp_path):
    pytest.importorskip("matplotlib")
    proof_pages.update(results)
    assert "Not measured yet" in (tmp_path / "ppo.md").read_text()
    for seed, mean in ((1, 470.0), (0, 500.0)):
        results.append("learning", record(seed, mean))
    proof_pages.update(results)
    text = (tmp_path / "ppo.md").read_text()
    assert text.startswith("before\n<!-- results:cartpole_ppo -->\n| seeds | [return of 100 episodes](results.md) |")
    assert text.endswith("<!-- /results -->\nafter\n")
    assert "| 0-1 | 500.0, 470.0 | 100,352 | 1,568 | 12 |" in text
    assert "1 of 2 seeds reach 475. Mean over seeds 485.0. `minding train cartpole_ppo --seeds 0-1`" in text
    assert (tmp_path / "img" / "cartpole_ppo.png").is_file()


def test_every_measured_variant_is_one_of_its_study():
    """A variant that is renamed would leave the table, and its row the page."""
    rows = [json.loads(line) for line in (ROOT / "docs/results/studies.jsonl").read_text().splitlines()]
    assert {(row["study"], row["variant"]) for row in rows} <= {
        *((name, variant) for name, study in STUDIES.items() for variant in study.variants),
        *((job.study, job.variant) for job in team_benchmark.jobs()),
    }


def test_all_pages_show_what_the_result_files_say(tmp_path, monkeypatch):
    """Guards every table: a change of one that is not followed by ``python -m proofs.run`` is found here."""
    monkeypatch.setattr(proof_pages, "plot_curves", lambda *_: None)
    # A curve of a page would be drawn in its folder.
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "assets"))
    results, unknown = Results(tmp_path / "docs"), set()

    def table(name, page):
        text = lanes_table(name, results.docs) or proof_pages.table(results, name, page)
        if text is None:
            unknown.add(name)
        return text

    for page in sorted(results.docs.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert filled(text, lambda name, page=page: table(name, page)) == text, page.name
    # Written by the benchmarks.
    assert unknown == {"bench_dreamer", "bench_search"}


def test_results_of_other_settings_are_left_out(results):
    results.append("learning", record(0, 10.0, settings="old"))
    results.append("learning", record(1, 400.0))
    results.append("learning", record(1, 490.0))
    assert [(each["seed"], each["eval_mean"]) for each in results.of("learning", "cartpole_ppo")] == [(1, 490.0)]


def test_a_command_with_a_row_is_done_and_changes_are_told(results):
    row = {**record(1, 490.0), "command": JOB.command}
    results.append("learning", row)
    assert results.has(JOB)
    assert not any(results.has(other) for other in (replace(JOB, seed=2), replace(JOB, env_step=50_000)))
    # The row of another seed, with settings that are newer, leaves the first one out of the tables.
    results.append("learning", {**record(2, 480.0, "newer"), "command": replace(JOB, seed=2).command})
    assert results.has(replace(JOB, seed=2))
    assert not results.has(JOB)
    assert changed_since(row)
    assert not changed_since({**row, "settings_hash": replace(JOB, seed=0).config_hash})
    assert "1 of 1 rows are older than a change" in proof_pages.TABLES["seeds"](results)


def test_a_run_stays_at_its_target_for_50000_steps(results):
    steps = [10_000, 30_000, 60_000, 90_000]
    run = {"curve": {"env_step": steps, "eval_return": [9.0, 5.0, 7.0, 1.0]}, "env_step": 100_000, "eval_mean": 6.0}
    # The first one that is 50,000 steps later is the last one that counts.
    assert after_target(run, 8.0) == [5.0, 7.0]
    assert after_target({**run, "env_step": 59_999, "curve": {"env_step": [10_000], "eval_return": [9.0]}}, 8.0) == []
    assert after_target(run, 10.0) == []
    assert after_target({**run, "curve": {"train_iter": steps, "eval_return": [9.0] * 4}}, 8.0) == []
    curve = {"env_step": [1000, 40_000, 60_000], "eval_return": [500.0, 480.0, 470.0]}
    results.append("learning", {**record(0, 500.0), "curve": curve})
    results.append("learning", {**record(1, 500.0), "curve": {**curve, "eval_return": [0.0, 475.0, 480.0]}})
    assert "| 1 of 2, 470.0 |" in proof_pages.TABLES["seeds"](results)


def test_what_is_proved_is_what_the_presets_say():
    assert LEARNING["cartpole_ppo"] == Learning("cartpole_ppo", 100_000, 475.0, seeds=5)
    assert LEARNING["halfcheetah_sac"] == Learning("halfcheetah_sac", 1_000_000, None, seeds=3)
    assert "pong_ppo" not in LEARNING
    for name, proof in LEARNING.items():
        assert proof.target is None or f"at least {proof.target:g}" in expectation(name)
    assert [job.overrides[2:] for job in plan(parse_arguments(["--only", "async:cartpole_ppo", "--seeds", "1"]))] == [
        ("lanes.async_mode=true",)
    ]
