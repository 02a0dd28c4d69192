"""Tables of search and of Dreamer beside their peers."""

import json

import numpy as np

from benchmarks import dreamer, dreamer_work, pages

MACHINE = {"cpu": "a processor", "load": 0.1, "minding": {"numpy": "1"}, "peers": {"numpy": "2", "torch": "2"}}


def test_each_row_of_search_has_both_peers_and_ours_is_the_median():
    figures = {"pairs": 5, "lowest": 1.5, "highest": 3.0}
    rows = [
        {"peer": "python", "games": 1, "ours": 100, "peer_value": 50, "ratio": 2.0, **figures},
        {"peer": "cpp", "games": 1, "ours": 300, "peer_value": 6000, "ratio": 0.05, **figures},
        {"peer": "python_puct", "games": 64, "ours": 9000, "peer_value": 3000, "ratio": 3.0, **figures},
    ]
    table = pages.search_table({"rows": rows}).splitlines()[2:]
    assert table == [
        "| 1 | UCT | 200 | 50 | 2.00x (1.50 - 3.00) | 6,000 | 0.05x (1.50 - 3.00) |",
        "| 64 | PUCT | 9,000 | 3,000 | 3.00x (1.50 - 3.00) |  |  |",
    ]


def test_processes_alternate_and_ratios_are_medians_of_pairs(monkeypatch, tmp_path):
    told = []
    times = {"ours": iter([10.0, 20.0, 10.0]), "peer": iter([20.0, 20.0, 30.0])}

    def call(command, environment, timeout):
        side = "ours" if "--one" in command else "peer"
        told.append((side, *command[-2:]))
        value = next(times[side])
        return json.dumps({"cpu_ms": value, "wall_ms": 2 * value})

    monkeypatch.setattr(dreamer, "call", call)
    line = dreamer.compare(("observation", "full"), 3, 7, "python")
    assert told == [("ours", "observation", "7"), ("peer", "full", "7")] * 3
    assert line["cpu_ms"] == {"ours": 10.0, "peer": 20.0, "ratio": 2.0, "lowest": 1.0, "highest": 3.0}
    record = {"name": "dreamer", **MACHINE, "rows": [line]}
    row = "| `observation` | `full` | 10.0 | 20.0 | 2.00x | 1.00 - 3.00 | 2.00x |"
    assert row in pages.beside_table(record)
    footer = "Medians of 3 pairs on a processor, load 0.1. minding: numpy 1; peers: numpy 2, torch 2."
    assert footer in pages.beside_table(record)
    pages.publish("dreamer", record, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["rows"] == [line]


def test_the_work_of_dreamer_is_that_of_its_defaults_and_fills_its_buffer():
    from minding.configs import compile_run

    cfg, rows = compile_run("pendulum_dreamer"), dreamer_work.rows()
    model, learn = cfg.policy.model, cfg.policy.learn
    sizes = (model.deter, model.latents, model.classes, model.hidden, model.bins, model.bin_limit, model.unimix)
    assert sizes == (128, 8, 8, [dreamer_work.UNITS] * 2, dreamer_work.BINS, dreamer_work.LIMIT, dreamer_work.UNIFORM)
    assert (learn.batch_size, learn.length, learn.horizon, learn.starts, learn.tau) == (
        16,
        32,
        15,
        256,
        dreamer_work.SLOW,
    )
    assert (learn.gamma, learn.td_lambda, learn.entropy_weight, learn.free_nats) == (
        0.99,
        0.95,
        dreamer_work.ENTROPY,
        1.0,
    )
    assert {len(values) for values in rows.values()} == {dreamer_work.ROWS}
    assert rows["ended"].sum() == dreamer_work.ROWS // dreamer_work.EPISODE
    np.testing.assert_array_equal(rows["obs"][1:], rows["next_obs"][:-1])
