"""Learning curves from metrics.csv."""

import itertools
import json
import sys

import numpy as np
import pytest
from fakes import refuses
from run_kit import make_run as made_run

from minding.engine.chain.trace import Span, Trace
from minding.engine.errors import ConfigError, MissingExtraError
from minding.engine.run.curves import learning_curves, mean_curve
from minding.engine.run.metrics import read_metrics
from minding.engine.run.plotting import plot_curves, plot_metrics, plot_run, plot_trace, terminal_curve, thinned
from minding.engine.run.run_dir import RunDir, run_folders

METRICS = "env_step,eval/return_mean,collect/return_mean\n0,10.0,\n100,,20.0\n200,30.0,25.0\n300,nan,\n"


def make_run(
    tmp_path, name="cartpole", algorithm="ppo", metrics=METRICS, seed=0, env_id="CartPole-v1", target=None, **learn
):
    policy = {"type": algorithm, "learn": learn}
    return made_run(
        tmp_path, name, metrics=metrics, seed=seed, env_id=env_id, run={"target": target}, policy=policy
    ).path


def test_the_mean_is_over_the_steps_that_all_seeds_have():
    short = (np.array([0.0, 100.0]), np.array([0.0, 10.0]))
    long = (np.array([50.0, 250.0]), np.array([25.0, 125.0]))
    curve = mean_curve("ppo", [short, long])
    assert (curve.steps[0], curve.steps[-1]) == (50.0, 100.0)
    assert (curve.mean[0], curve.mean[-1]) == (15.0, 30.0)
    assert (curve.low[-1], curve.high[-1]) == (10.0, 50.0)
    many = mean_curve("ppo", [(np.array([0.0, 1.0]), np.array([float(k), float(k)])) for k in (1, 2, 3, 4, 5)])
    assert (many.mean[0], many.low[0], many.high[0]) == (3.0, 1.8, 4.2)
    one = mean_curve("ppo", [(np.array([0.0, 7.0]), np.array([1.0, 2.0]))])
    assert one.steps.tolist() == [0.0, 7.0]
    assert one.low.tolist() == one.mean.tolist() == one.high.tolist() == [1.0, 2.0]


def test_a_long_series_is_drawn_by_extremes_of_its_columns():
    rng = np.random.default_rng(0)
    steps = np.sort(rng.integers(0, 10**6, 50_000)).astype(np.float64)
    values = rng.normal(size=50_000)
    values[1234], values[40_000] = 99.0, -99.0
    x, y, other = thinned(steps, values, 2 * values, columns=100)
    assert len(x) == len(y) <= 400
    assert (x[0], x[-1], y[0], y[-1]) == (steps[0], steps[-1], values[0], values[-1])
    assert (np.diff(x) >= 0).all()
    assert np.array_equal(other, 2 * y)
    column = ((steps - steps[0]) / (steps[-1] - steps[0]) * 100).astype(int)
    kept = ((x - steps[0]) / (steps[-1] - steps[0]) * 100).astype(int)
    for number in range(100):
        own, all_of_it = y[kept == number], values[column == number]
        assert (own.min(), own.max()) == (all_of_it.min(), all_of_it.max())
    short = thinned(steps[:400], values[:400], columns=100)
    assert short[0].tolist() == steps[:400].tolist()
    same = thinned(np.full(5000, 7.0), values[:5000])
    assert len(same[0]) <= 4


def drawn(paths):
    return [(curve.env_id, curve.label, curve.kind, curve.n_runs) for curve in learning_curves(paths)]


def test_runs_that_differ_only_in_the_seed_are_one_curve(tmp_path):
    paths = [make_run(tmp_path, seed=0), make_run(tmp_path, "moved", seed=1), make_run(tmp_path, "b", "dqn")]
    paths.append(make_run(tmp_path, env_id="A-v0"))
    assert drawn(paths) == [
        ("A-v0", "ppo", "evaluation", 1),
        ("CartPole-v1", "ppo", "evaluation", 2),
        ("CartPole-v1", "dqn", "evaluation", 1),
    ]
    others = [make_run(tmp_path, seed=seed, gamma=gamma, tau=0.1) for seed in (0, 1) for gamma in (0.9, 0.99)]
    assert [found[1:] for found in drawn(others)] == [
        ("ppo, gamma=0.9", "evaluation", 2),
        ("ppo, gamma=0.99", "evaluation", 2),
    ]


def make_seeds(folder, returns):
    folder.mkdir()
    (folder / "settings.yaml").write_text("seed: 0\n")
    (folder / "logs").mkdir()
    for seed, value in returns.items():
        path = make_run(folder, f"seed_{seed}", seed=seed)
        (path / "summary.json").write_text(json.dumps({"eval_return": value}))
    return folder


def test_a_folder_of_seeds_stands_for_its_runs(tmp_path):
    folder = make_seeds(tmp_path / "cartpole-seeds", {0: 480.0, 2: 500.0, 10: float("nan")})
    (curve,) = learning_curves([folder])
    assert (curve.n_runs, curve.finals, curve.seeds) == (3, (480.0, 500.0), "mean of 3 seeds, range")
    assert [path.name for path in run_folders(folder)] == ["seed_0", "seed_2", "seed_10"]
    refuses(ConfigError, ("holds the runs of 3 seeds", lambda: RunDir.open(folder)))
    (two,) = learning_curves([make_seeds(tmp_path / "seeds", {0: 480.0, 1: 500.0})])
    assert two.seeds == "mean of 2 seeds, and both"
    (four,) = learning_curves([make_seeds(tmp_path / "four", dict.fromkeys(range(4), 480.0))])
    assert four.seeds == "mean of 4 seeds, 95 % interval"


def test_labels_name_the_curves_in_their_order(tmp_path):
    paths = [make_run(tmp_path, gamma=gamma, seed=seed) for gamma in (0.9, 0.99) for seed in (0, 1)]
    assert [curve.label for curve in learning_curves(paths, ["short", "long"])] == ["short", "long"]
    with pytest.raises(ConfigError, match=r"1 labels for 2 curves.*gamma=0.9 \(2 runs\)"):
        learning_curves(paths, ["short"])


def test_seeds_are_compared_by_one_kind_of_return(tmp_path):
    training = "env_step,collect/return_mean\n100,20.0\n200,25.0\n"
    (curve,) = learning_curves([make_run(tmp_path), make_run(tmp_path, seed=1, metrics=training)])
    assert (curve.kind, curve.n_runs, curve.mean[-1]) == ("training", 2, 25.0)
    # So are the configurations of one environment: the first run has evaluations, too.
    other = make_run(tmp_path, "b", metrics=training, policy={"learn": {"gamma": 0.5}})
    elsewhere = make_run(tmp_path, "c", env_id="Acrobot-v1")
    curves = learning_curves([make_run(tmp_path, "a"), other, elsewhere])
    assert [curve.kind for curve in curves] == ["evaluation", "training", "training"]


def test_folders_that_cannot_be_read_are_left_out_with_a_warning(tmp_path, caplog):
    broken = [make_run(tmp_path, f"broken{number}") for number in range(4)]
    (broken[0] / "config.yaml").write_text("- 1\n")
    (broken[1] / "config.yaml").write_text("env: 3\npolicy: {}\n")
    (broken[2] / "metrics.csv").write_bytes(b"\xff\xfe")
    (broken[3] / "metrics.csv").unlink()
    assert len(learning_curves([*broken, make_run(tmp_path), tmp_path / "absent"])) == 1
    assert caplog.text.count("left out: ") == 5
    with pytest.raises(ConfigError, match="none of these 4 folders holds a run with returns"):
        learning_curves(broken)


def test_pictures_are_written_or_the_extra_is_named(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    paths = [make_run(tmp_path), make_run(tmp_path, seed=1), make_run(tmp_path, env_id="B-v0")]
    plot_curves(learning_curves(paths), tmp_path / "curves.png")
    plot_run(read_metrics(paths[0] / "metrics.csv"), "cartpole", tmp_path / "curve.png")
    for name in ("curves.png", "curve.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    refuses(MissingExtraError, ("[plot]", lambda: plot_curves([], tmp_path / "curves.png")))


def lines_of(axes, style="-"):
    return [line for line in axes.get_lines() if line.get_linestyle() == style]


def test_curves_begin_at_step_0_with_seeds_and_target(tmp_path, figures):
    later = METRICS.replace("\n0,10.0,\n", "\n")
    paths = [make_run(tmp_path, seed=seed, metrics=later + "400,50.0,\n", target=475.0) for seed in range(3)]
    for number, path in enumerate(paths):
        figures_of_run = {"unit": "env_step", "env_step": 500 + number, "eval_return": 60.0 + number}
        (path / "summary.json").write_text(json.dumps(figures_of_run))
    plot_curves(learning_curves(paths), tmp_path / "curves.png")
    (axes,) = figures[0].axes
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == (
        "ppo on CartPole-v1",
        "environment steps",
        "episode return",
    )
    assert axes.get_xlim()[0] == 0
    mean, *seeds = sorted(lines_of(axes), key=lambda line: -line.get_linewidth())
    assert mean.get_alpha() is None
    assert len({line.get_color() for line in (mean, *seeds)}) == 4
    assert all(line.get_alpha() < 0.8 and 2 * line.get_linewidth() < mean.get_linewidth() for line in seeds)
    assert [line.get_xdata().tolist() for line in seeds] == [[200.0, 400.0]] * 3
    (target,) = lines_of(axes, "--")
    assert (target.get_ydata(), target.get_label()) == ([475.0, 475.0], "target 475")
    (final,) = lines_of(axes, "None")
    assert (final.get_xdata(), final.get_ydata()) == ([501.0], [61.0])
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [
        "ppo (evaluation, mean of 3 seeds, range)",
        "seed 0",
        "seed 1",
        "seed 2",
        "final evaluation (mean)",
        "target 475",
    ]


def test_axes_begin_at_0_for_returns_and_not_for_noise(tmp_path, figures):
    table = "env_step,eval/return_mean,train/entropy\n0,495.0,0.69\n100,500.0,0.68\n"
    path = make_run(tmp_path, metrics=table)
    plot_curves(learning_curves([path]), tmp_path / "curve.png")
    metrics = read_metrics(path / "metrics.csv")
    plot_metrics({"cartpole": metrics}, ["train/entropy"], tmp_path / "metrics.png", columns=1)
    (returns,), (entropy,) = (figure.axes for figure in figures)
    assert returns.get_ylim()[0] <= 0.0
    assert returns.get_ylim()[1] > 500.0
    low, high = entropy.get_ylim()
    assert high - low > 0.06
    assert low < 0.68 < 0.69 < high
    assert (entropy.get_title(), figures[1].get_supxlabel()) == ("entropy", "environment steps")


def test_a_terminal_curve_rises_from_corner_to_corner():
    assert terminal_curve([0, 50, 100], [0.0, 250.0, 500.0], width=20, height=3).splitlines() == [
        "500 ┤                   •",
        "    ┤          •",
        "  0 ┤•",
        "    └────────────────────",
        "     0      100 env steps",
    ]
    assert terminal_curve([5], [1.0], width=10, height=2).count("•") == 1
    assert terminal_curve([], []) == terminal_curve([0], [float("nan")]) == "(no returns yet)"


def test_every_span_of_a_time_line_can_be_seen_in_its_row(tmp_path, figures):
    trace = Trace()
    # Ten microseconds each, in a timeline of two seconds.
    short = ["termination_checker", "CkptSaver", "online_logger"]
    starts = [11.0, 11.00001, 11.00002]
    trace.add("main", [Span("collect lane", 10.0, 10.5), Span("trainer", 10.5, 11.0)])
    trace.add("main", [Span(name, start, start + 1e-5) for name, start in zip(short, starts)])
    trace.add("main", [Span("collect lane", 11.00003, 11.00004), Span("trainer", 11.00004, 12.0)])
    trace.add("collector", [Span("StepCollector", 10.0, 11.99)])
    trace.write(tmp_path / "trace.json")
    parsed = json.loads((tmp_path / "trace.json").read_text())
    plot_trace(parsed, tmp_path / "whole.png")
    main, collector = _colors_along_the_rows(figures[0], 2)
    names = ["collect lane", "trainer", *short, "collect lane", "trainer"]
    assert len(main) == len(names)
    of_a_name = dict(zip(names, main))
    assert main == [of_a_name[name] for name in names]
    assert len(set(main)) == 5
    assert len(collector) == 1
    # The last 1.4 s before the collector has nothing more to do.
    plot_trace(parsed, tmp_path / "end.png", seconds=1.4)
    assert _colors_along_the_rows(figures[1], 2)[0] == main[1:]


def _colors_along_the_rows(figure, rows):
    """The colors of the bars of each row from left to right, those at least two pixels wide."""
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())
    axes = figure.axes[0]
    found = []
    for row in range(rows):
        _, y = axes.transData.transform((0.0, row))
        left, right = (int(edge) for edge in (axes.bbox.x0 + 2, axes.bbox.x1 - 2))
        line = map(tuple, pixels[len(pixels) - 1 - int(y), left:right, :3].tolist())
        runs = [(color, len(list(run))) for color, run in itertools.groupby(line)]
        found.append([color for color, width in runs if width >= 2 and color != (255, 255, 255)])
    return found
