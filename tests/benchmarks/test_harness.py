"""The benchmark harness, with scripts that print fixed numbers in the place of both sides, and the sampler."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from benchmarks import ours, pairs, probes, report, run, window
from benchmarks.cases import CASES, SCALING_CASES, PPOCase
from benchmarks.pairs import Comparison, Plan, RunFailed, Side
from benchmarks.profile import REST, Sampler
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


class TestPairs:
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
