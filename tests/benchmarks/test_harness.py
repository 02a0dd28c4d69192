"""The benchmark harness, with scripts that print fixed numbers in the place of both sides, and the sampler."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    async_overlap,
    dreamer,
    dreamer_work,
    ours,
    pages,
    pairs,
    probes,
    profile,
    report,
    run,
    scaling,
    window,
)
from benchmarks.cases import CASES, SCALING_CASES, PPOCase, find_case
from benchmarks.pairs import Comparison, Plan, RunFailed, Side
from benchmarks.profile import PARTS, REST, Sampler
from benchmarks.window import Measurement

ROOT = Path(__file__).resolve().parents[2]
PLAN = Plan(pairs=3, scale=1.0, peers_python=sys.executable, timeout=30)


def speed(steps_per_second: float, peer: str = "sb3", case: str = "dqn_cartpole") -> Measurement:
    """A measurement of 2 s on the clock, 3 s of processor time and 100 MB, after a first iteration of 4 s."""
    return Measurement(case, peer, round(2 * steps_per_second), 2.0, 3.0, 100.0, 4.0)


def script_side(name: str, script: str) -> Side:
    return Side(name, (sys.executable, "-c", script))


def fixed_speeds(name: str, rates: list[int]) -> Side:
    """A side whose run with seed s reports the s-th of `rates`."""
    script = (
        "import json, sys\n"
        f"rate = {rates}[int(sys.argv[3]) - 1]\n"
        f"print('a remark\\n' + json.dumps(dict(case=sys.argv[1], peer={name!r}, env_steps=rate, "
        "seconds=1.0, cpu_seconds=1.0, peak_mb=100.0 * rate, first_seconds=1.0, steps_per_second=rate)))"
    )
    return script_side(name, script)


@pytest.fixture
def two_sides(monkeypatch):
    def install(ours_rates: list[int], peer_rates: list[int]) -> None:
        monkeypatch.setattr(Side, "ours", staticmethod(lambda: fixed_speeds("minding", ours_rates)))
        monkeypatch.setattr(Side, "peer", staticmethod(lambda name, *_: fixed_speeds(name, peer_rates)))

    return install


class TestCases:
    @pytest.mark.parametrize("case", (CASES | SCALING_CASES).values(), ids=lambda case: case.name)
    def test_the_numbers_of_a_case_fit_each_other(self, case):
        assert case.name in ours.PRESETS
        assert case.warmup_steps > case.first_steps > getattr(case, "learning_starts", 0)
        assert case.first_steps % case.iteration_steps == 0
        assert case.warmup_steps % case.iteration_steps == case.window(0.1) % case.iteration_steps == 0
        if isinstance(case, PPOCase):
            assert case.minibatches * case.batch_size == case.num_envs * case.rollout_length


class TestMeasurement:
    def test_only_the_window_is_on_the_clock(self, monkeypatch):
        wall, cpu, asked = iter([10.0, 14.0]), iter([1.0, 7.0]), []
        monkeypatch.setattr(window.time, "perf_counter", lambda: next(wall))
        monkeypatch.setattr(window.time, "process_time", lambda: next(cpu))

        def train_for(env_steps: int) -> int:
            asked.append(env_steps)
            return env_steps + 8

        options = window.parse_options(["dqn_cartpole", "--scale", "0.5"])
        measured = window.measure(options, "sb3", train_for)
        # 1,000 steps before learning starts, the iteration that learns, and the 8 more that came with it.
        assert asked == [1004, 988, 3000]
        # The interpreter alone takes some MB.
        assert measured.peak_mb > 5.0
        assert 0.0 < measured.first_seconds < 1e6
        expected = Measurement("dqn_cartpole", "sb3", 3008, 4.0, 6.0, measured.peak_mb, measured.first_seconds)
        assert measured == expected

    def test_the_age_of_a_process_begins_with_its_start(self):
        script = "import time; from benchmarks import window; print(time.process_time(), window.age())"
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
        used, age = map(float, done.stdout.split())
        assert used - 0.02 <= age <= time.perf_counter() - begun + 0.02


class TestPairs:
    def test_a_peer_elsewhere_runs_in_its_own_interpreter(self, monkeypatch):
        asked = []
        monkeypatch.setattr(
            Side, "peer", staticmethod(lambda *given: asked.append(given) or fixed_speeds("xuance", [1]))
        )
        monkeypatch.setattr(Side, "ours", staticmethod(lambda: fixed_speeds("minding", [7])))
        plan = Plan(1, 1.0, "python of the others", 30, {"xuance": "own python"})
        assert pairs.compare(CASES["dqn_cartpole"], "xuance", plan, lambda line: None).ratios == [7.0]
        pairs.compare(CASES["dqn_cartpole"], "sbx", plan, lambda line: None)
        assert asked == [("xuance", "own python", 1), ("sbx", "python of the others", 1)]

    def test_the_target_is_compared_with_the_median_of_ratios(self):
        # Medians are 400 and 100 (4x), the pairwise ratios 1.6, 8 and 1.
        rates = ([160, 800, 400], [100, 100, 400])
        ours_side, peer_side = ([speed(rate) for rate in side] for side in rates)
        assert Comparison("dqn_cartpole", "sb3", 2.0, ours_side, peer_side).met is False

    @pytest.mark.parametrize("case", ["sac_pendulum", "sac_pendulum_two_threads"])
    def test_both_sides_get_the_threads_of_the_case(self, case):
        threads = CASES[case].threads
        assert threads == (2 if case.endswith("two_threads") else 1)
        side = Side.peer("sb3", "/usr/bin/python3", threads)
        assert {side.environment[k] for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} == {str(threads)}
        assert f"run.jit_threads={threads}" in ours.overrides(CASES[case])

    @pytest.mark.parametrize(
        ("script", "message"),
        [
            (
                f"import sys; sys.exit('a\\n{ROOT}/benchmarks/ours.py: broken')",
                "returned 1: benchmarks/ours.py: broken",
            ),
            ("print('hello')", "expected|Expecting"),
            ("pass", "Expecting"),
            ("import threading; threading.Event().wait()", "took longer than 1 s; raise --timeout"),
            (f"print({speed(10, peer='other').to_json()!r})", "asked sb3 for dqn_cartpole, got other"),
        ],
    )
    def test_a_run_without_a_measurement_is_an_error(self, script, message):
        with pytest.raises(RunFailed, match=message):
            pairs.run_side(script_side("sb3", script), CASES["dqn_cartpole"], 1, 1.0, timeout=1)


class TestPeersPython:
    def test_the_environment_is_made_once_or_after_an_interruption(self, monkeypatch, tmp_path):
        monkeypatch.delenv("MINDING_PEERS_PYTHON", raising=False)
        monkeypatch.setattr(pairs, "ROOT", tmp_path)
        commands: list[str] = []
        broken = [True]

        def call(command: list[str], environment: dict[str, str], timeout: float) -> str:
            commands.append(command[2])
            (tmp_path / ".venv-peers").mkdir(exist_ok=True)
            if command[2] == "pip" and broken:
                broken.pop()
                raise RunFailed("connection lost")
            return ""

        monkeypatch.setattr(pairs, "call", call)
        with pytest.raises(RunFailed, match="connection lost"):
            pairs.find_peers_python(lambda line: None)
        first = pairs.find_peers_python(lambda line: None)
        assert first == str(tmp_path / ".venv-peers" / "bin" / "python")
        assert pairs.find_peers_python(pytest.fail) == first
        assert commands == ["venv", "pip", "venv", "pip", "pip"]


def probe_answer(monkeypatch, *answers: object) -> None:
    """Lets the measuring scripts print these values as JSON, one after the other."""
    lines = iter([json.dumps(answer) for answer in answers])
    monkeypatch.setattr(probes, "call", lambda *_: next(lines))


class TestProbes:
    def test_import_of_a_heavy_package_fails_the_reading(self, monkeypatch):
        probe_answer(monkeypatch, *[{"seconds": 0.1, "heavy": ["mindspore"]}] * 5)
        reading = probes.read("import_time", timeout=30)
        assert (reading.met, reading.error) == (None, "imports mindspore, which must load later")


@pytest.fixture
def finished() -> report.Report:
    machine = {"cpu": "A processor", "cores": 2, "system": "Linux x86_64", "load": 0.5}
    machine |= {"minding": {"python": "3.11.7"}, "peers": {"torch": "2.13.0"}}
    good = Comparison("dqn_cartpole", "sb3", 2.0, [speed(3000), speed(2400)], [speed(1000), speed(1000)])
    slow = Comparison("sac_pendulum", "sb3", 1.8, [speed(150)], [speed(100)])
    broken = Comparison("ppo_cartpole_8", "sb3", 2.5, error="not wired yet")
    return report.Report(machine, PLAN, [good, slow, broken], [probes.Reading("import", 0.3, "s", 0.2)], "2030-01-01")


class TestReport:
    def test_markdown_has_medians_ratio_spread_target_and_verdict(self, finished):
        page = finished.to_markdown()
        assert (
            "| vectors | dqn_cartpole | sb3 | 2 | 2,700 | 1,000 | 2.70x | 2.40 - 3.00 | 1.5 / 1.5 | 100 / 100 "
            "| 4.0 / 4.0 | >= 2x | yes |"
        ) in page
        assert "| sac_pendulum | sb3 | 1 | 150 | 100 | 1.50x | 1.50 - 1.50 | 1.5 / 1.5 | 100 / 100 | 4.0" in page
        assert "| import | 0.2 s | <= 0.3 s | yes |" in page
        assert "A processor, 2 cores, Linux x86_64, load 0.5 at the start." in page
        assert "torch 2.13.0" in page
        assert "Both sides compute with one thread, unless the case says otherwise." in page

    def test_work_of_one_kind_stands_together(self, finished):
        names = ("qmix_simple_spread", "dqn_minatar", "a2c_cartpole", "iql_recorded", "recurrent_ppo_cartpole")
        finished.results = [Comparison(name, "sb3", 1.0, [speed(2)], [speed(1)]) for name in (*names, "ppo_pixels")]
        rows = finished.tables()[0][1]
        expected = ["vectors", "images", "images", "recurrent", "teams", "recorded data"]
        assert [row[0] for row in rows] == expected
        assert [row[1] for row in rows[1:3]] == ["dqn_minatar", "ppo_pixels"]


class TestRun:
    @pytest.mark.parametrize("argv", [["--pairs", "0"], ["--scale", "0"], ["--only", "ppo_cartpole_9"]])
    def test_bad_input_ends_with_code_2(self, argv, capsys):
        with pytest.raises(SystemExit) as stop:
            run.parse_arguments(argv)
        assert stop.value.code == 2

    def test_a_partial_run_never_replaces_the_published_table(self):
        def folder(*argv: str) -> Path:
            return run.output_folder(run.parse_arguments(argv))

        assert folder() == ROOT / "benchmarks" / "results"
        local = ROOT / "benchmarks" / "results" / "local"
        assert [folder("--quick"), folder("--only", "dqn_cartpole")] == [local] * 2
        assert folder("--quick", "--output", "here") == Path("here")

    def test_one_case_from_the_command_line_to_the_files(self, two_sides, monkeypatch, tmp_path, capsys):
        two_sides([500, 600], [200, 200])
        monkeypatch.setenv("MINDING_PEERS_PYTHON", sys.executable)
        monkeypatch.setenv("MINDING_XUANCE_PYTHON", sys.executable)
        code = run.main(["--only", "dqn_cartpole", "--pairs", "2", "--output", str(tmp_path)])
        assert code == 0
        assert "pair 2: 600/s against 200/s, 3.00x" in capsys.readouterr().out
        record = json.loads((tmp_path / "latest.json").read_text())
        assert {r["case"] for r in record["results"]} == {"dqn_cartpole"}
        assert [r["peer"] for r in record["results"]] == ["sb3", "sbx", "xuance"]
        assert "xuance" in record["machine"]
        assert sys.executable not in (tmp_path / "latest.json").read_text()
        assert record["results"][0]["median_ratio"] == 2.75
        assert record["readings"] == []
        assert "peers_python" not in record["plan"]

    def test_a_failed_side_gives_code_1_and_still_writes(self, two_sides, monkeypatch, tmp_path):
        two_sides([], [200])
        monkeypatch.setenv("MINDING_PEERS_PYTHON", sys.executable)
        monkeypatch.setenv("MINDING_XUANCE_PYTHON", sys.executable)
        assert run.main(["--only", "dqn_cartpole", "--output", str(tmp_path)]) == 1
        assert "Did not run:" in (tmp_path / "latest.md").read_text()

    def test_a_probe_alone_needs_no_peers(self, monkeypatch, tmp_path):
        monkeypatch.setenv("MINDING_PEERS_PYTHON", str(tmp_path / "missing"))
        probe_answer(monkeypatch, *[{"seconds": 0.1, "heavy": []}] * 5)
        assert run.main(["--only", "import_time", "--output", str(tmp_path)]) == 0


def test_cases_and_clock_need_the_standard_library_only():
    script = (
        "import sys, benchmarks.window, benchmarks.cases\n"
        "print(sorted({'numpy', 'rich', 'minding', 'mindspore', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class TestOverlap:
    def test_rollouts_that_lay_ready_give_no_speed(self):
        # Four rollouts of 2 s lie ready; learning takes 1 s an iteration.
        rollouts = [("StepCollector", 2 * n, 2) for n in range(7)]
        learned = [("multistep_trainer", 8 + n, 1) for n in range(6)]
        events = [{"name": name, "ts": 1e6 * ts, "dur": 1e6 * dur} for name, ts, dur in rollouts + learned]
        timed = async_overlap.speeds(events, iterations=4, after=1)
        # From 9 to 13 s: four iterations were learned from, two rollouts collected.
        assert timed == pytest.approx(
            {
                "iterations_per_second": 0.5,
                "env_steps_per_second": 0.5 * async_overlap.STEPS,
                "collect_seconds": 2.0,
                "learn_seconds": 1.0,
            }
        )


class TestScaling:
    @pytest.fixture
    def one_series(self, monkeypatch):
        def install(unit: str, values: dict[str, list[float]], peer: str | None = "sb3") -> None:
            left = {side: iter(figures) for side, figures in values.items()}

            def take(side: str, size: int, plan: scaling.Plan) -> scaling.Reading:
                del plan
                figure = next(left[side], None)
                if figure is None:
                    raise RunFailed(f"{side} took longer than 180 s at {size}")
                return scaling.Reading(figure, 10.0 * figure)

            series = scaling.Series("work, rows", unit, (64,), take, peer)
            monkeypatch.setattr(scaling, "SERIES", {"sac": series})
            monkeypatch.setenv("MINDING_PEERS_PYTHON", sys.executable)
            monkeypatch.setattr(scaling, "peer_versions", lambda python: {})

        return install

    def test_the_table_has_medians_memory_and_pairwise_ratios(self, one_series, tmp_path, capsys):
        one_series("env steps/s", {"minding": [100.0, 300.0, 200.0], "sb3": [100.0, 100.0, 50.0]})
        assert scaling.main(["--output", str(tmp_path)]) == 0
        line = "| work, rows | 64 | env steps/s | 200 | 2,000 | sb3 | 100 | 1,000 | 3.00x |"
        assert line in capsys.readouterr().out
        [row] = json.loads((tmp_path / "scaling.json").read_text())["rows"]
        assert row["theirs"][2] == {"value": 50.0, "peak_mb": 500.0}

    def test_only_a_full_run_goes_into_the_page(self, monkeypatch, tmp_path):
        monkeypatch.setattr(scaling, "ROOT", tmp_path)
        page = tmp_path / "benchmarks" / "README.md"
        (page.parent / "results").mkdir(parents=True)
        page.write_text("before\n<!-- results:scaling -->\n<!-- /results -->\nafter\n")
        reading = {"value": 250.0, "peak_mb": 80.0}
        row = {"title": "collectors", "unit": "env steps/s", "size": 8, "peer": None}
        record = {"rows": [{**row, "ours": [reading], "theirs": [], "error": None}], "cpu": "A processor"}
        scaling.write(record, None, partial=True)
        assert "250" not in page.read_text()
        scaling.write(record, None, partial=False)
        assert "| collectors | 8 | env steps/s | 250 | 80 |  |  |  |  |" in page.read_text()
        assert "Measured on A processor, medians." in page.read_text()

    def test_the_published_table_is_that_of_the_results(self):
        folder = ROOT / "benchmarks"
        text = (folder / "README.md").read_text()
        assert "<!-- results:scaling -->" in text
        assert pages.filled(text, lambda name: pages.lanes_table(name, folder)) == text

    def test_every_size_of_training_has_its_case(self):
        for size in scaling.SERIES["ppo"].sizes:
            assert find_case(f"ppo_cartpole_{size}").num_envs == size
        assert [find_case(name).hidden[0] for name in ("sac_pendulum_64", "sac_pendulum_1024")] == [64, 1024]


# Search and Dreamer beside their peers


MACHINE = {"cpu": "a processor", "load": 0.1, "minding": {"numpy": "1"}, "peers": {"numpy": "2", "torch": "2"}}


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


def test_the_work_of_dreamer_has_defaults_and_fills_its_buffer():
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


# The sampler


def spend(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def collect() -> None:
    spend(0.04)


def learn() -> None:
    spend(0.06)


def test_time_counts_for_the_innermost_part_and_nothing_is_lost():
    with Sampler({"collecting": (":collect",), "learning": (":learn",)}) as sampler:
        start = time.process_time()
        collect()
        learn()
        spend(0.03)
        used = time.process_time() - start
    assert set(sampler.seconds) == {"collecting", "learning", REST}
    for part, seconds in (("collecting", 0.04), ("learning", 0.06), (REST, 0.03)):
        assert sampler.seconds[part] >= seconds - 0.015
    assert sum(sampler.seconds.values()) == pytest.approx(used, abs=0.02)
    assert sampler.looks > 5
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_library_counts_for_the_part_that_calls_it():
    sampler, parts = Sampler({"sorting": (":by_key",), "others": ("/no/such/file/",)}), []

    def by_key(x: int) -> int:
        parts.append(sampler.part_of(inspect.currentframe().f_back))
        parts.append(sampler.part_of(inspect.currentframe()))
        return x

    sorted([1], key=by_key)
    assert parts == [REST, "sorting"]


def test_shares_are_of_the_whole_and_times_of_an_iteration():
    sampler = Sampler(PARTS["minding"])
    sampler.looks = 4000
    sampler.seconds.update({"environment library": 1.0, "update: compiled call": 3.0})
    lines = profile.table(
        CASES["dqn_cartpole"], Measurement("dqn_cartpole", "minding", 8000, 4.0, 4.0, 100.0, 2.0), sampler
    )
    assert "| environment library | 25.0 % | 0.500 |" in lines
    assert "| update: compiled call | 75.0 % | 1.500 |" in lines
    assert lines.endswith("| total | 2,000 iterations, 4,000 looks | 2.000 |")


def test_the_files_of_our_parts_exist():
    patterns = [pattern for part in list(PARTS["minding"].values())[1:] for pattern in part]
    assert [pattern for pattern in patterns if not any(ROOT.glob(f"{pattern.strip('/')}*"))] == []
