"""The tables of algorithms for several agents."""

import json

from proofs.runs import Results
from proofs.team_tables import battle_table, spread_table


def written(folder, bounds, records):
    (folder / "results").mkdir()
    lines = [json.dumps({"settings_hash": "a", **record}) for record in records]
    (folder / "results" / "learning.jsonl").write_text("\n".join(lines))
    if bounds:
        (folder / "results" / "teams.json").write_text(json.dumps(bounds))
    return Results(folder)


def test_a_share_is_that_of_the_way_from_random_play_to_the_controller(tmp_path):
    bounds = {"episodes": 9, "spread": {"random": [-80.0, 1.0], "controller": [-30.0, 0.5]}}
    runs = [{"preset": "simple_spread_vdn", "seed": k, "eval_mean": -54.0 - 2 * k, "env_step": 1000} for k in range(2)]
    *_, row = spread_table(written(tmp_path, bounds, runs)).splitlines()
    assert row == "| [simple_spread_vdn](vdn.md) | -55.0 ± 1.0 | -56.0 to -54.0 | 2 seeds | 1,000 | 50 % |"


def test_battles_are_in_the_order_of_the_maps(tmp_path):
    bounds = {"episodes": 9, "battle": {name: {"random": 0.0} for name in ("3v3", "5v5")}}
    won = {"preset": "battle_mappo", "seed": 0, "eval_info": {"battle_won": 0.75}, "env_step": 1000}
    rows = battle_table(written(tmp_path, bounds, [won])).splitlines()[2:]
    assert rows == [
        "| 3v3 | random | 0.0 % | | 9 battles | |",
        "| 3v3 | [battle_mappo](mappo.md) | 75.0 % | 75 % to 75 % | 1 seed | 1,000 |",
        "| 5v5 | random | 0.0 % | | 9 battles | |",
    ]


def test_without_the_ends_of_the_scale_there_is_no_table(tmp_path):
    results = written(tmp_path, None, [])
    assert spread_table(results) == battle_table(results) == ""
