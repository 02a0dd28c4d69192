"""The HTML page about runs."""

import base64
import html.parser
import json
import re
import shutil
import subprocess
import time
from types import SimpleNamespace

import pytest
from run_kit import FIGURES
from run_kit import make_run as made_run

from minding.cli import run
from minding.cli.compare import changed_settings
from minding.configs import compile_run, load_preset
from minding.engine.errors import ConfigError
from minding.engine.run.page import Setting, write_page

pytest.importorskip("matplotlib")
ROWS = "env_step,eval/return_mean,collect/return_mean,train/loss\n0,20.0,,\n1024,,35.0,1.5\n2048,100.0,90.0,0.5\n"
TRACE = {
    "traceEvents": [
        {"ph": "M", "tid": 0, "args": {"name": "main"}},
        {"ph": "M", "tid": 1, "args": {"name": "collector"}},
        {"ph": "X", "tid": 0, "name": "learner", "ts": 0.0, "dur": 3e6},
        {"ph": "X", "tid": 0, "name": "saver", "ts": 3e6, "dur": 1e6},
        {"ph": "X", "tid": 1, "name": "StepCollector", "ts": 0.0, "dur": 2e6},
    ]
}
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"


class Page(html.parser.HTMLParser):
    """What a browser would see: the cells of the tables, the pictures, all text, and the tags with their attributes."""

    def __init__(self, path):
        super().__init__()
        self.rows, self.pictures, self.tags, self.text, self._open = [], [], [], "", []
        self.feed(path.read_text(encoding="utf-8"))
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "img":
            kind, data = re.fullmatch(r"data:([\w/+]+);base64,(.*)", dict(attrs)["src"]).groups()
            self.pictures.append((dict(attrs)["alt"], kind, base64.b64decode(data)))
        if tag not in ("img", "meta"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


EVALUATED = {**FIGURES, "eval_std": 10.0, "n_eval_episodes": 100, "steps_per_second": 682.7}


def make_run(folder, name="a", *, value=100.0, **settings):
    figures = {**EVALUATED, "eval_return": value}
    return made_run(folder, name, metrics=ROWS, figures=figures, run={"max_env_step": 2048}, **settings)


def test_a_page_has_result_pictures_and_what_to_do_next(tmp_path):
    made = make_run(tmp_path / "runs")
    (made.path / "trace.json").write_text(json.dumps(TRACE))
    made.video.write_bytes(GIF)
    assert run(["report", str(made.path)]) == 0
    page = Page(made.path / "report.html")
    assert ["a", "100.0 ± 10.0", "100", "2,048 environment steps", "3 s", "max_env_step"] in page.rows
    assert ["a", "683 environment steps/s"] in page.rows
    # Of its lane: the learner had 3 of 4 seconds.
    assert page.rows[-3:-1] == [["main: learner", "3.00", "75.0 %"], ["collector: StepCollector", "2.00", "100.0 %"]]
    kinds = [(name, kind) for name, kind, _ in page.pictures]
    svg, png = "image/svg+xml", "image/png"
    assert kinds == [
        ("Learning curve", svg),
        ("An episode", "image/gif"),
        ("Metrics of learning", svg),
        ("Timeline", png),
    ]
    assert page.pictures[1][2] == GIF
    # The picture of a single run is that of its folder, curve.png, with the returns of training.
    assert b"training (mean of up to 100 episodes)" in page.pictures[0][2]
    assert f"minding resume {made.path}" in page.text


def test_a_page_does_not_show_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made = make_run(tmp_path / "runs")
    setting = SimpleNamespace(path="policy.other.data", value=str(tmp_path / "data"), default=None)
    write_page([made.path], tmp_path / "page.html", lambda cfg: [setting])
    page = (tmp_path / "page.html").read_text()
    assert "minding eval '~/runs/a'" in page.replace("&#x27;", "'")
    assert "~/data" in page
    assert str(tmp_path) not in page


def test_a_run_without_an_environment_shows_recorded_data(tmp_path):
    made = make_run(tmp_path / "runs", env_id="data")
    made.metrics.write_text("train_iter,eval/return_mean,eval/action_distance\n100,,0.5\n200,,0.25\n")
    figures = {"unit": "train_iter", "train_iter": 200, "wall_time": 3.0, "stop_reason": "max_train_iter"}
    made.write_summary({**figures, "data_eval": {"action_distance": 0.25, "td_error": 3.0}})
    write_page([made.path], tmp_path / "page.html", lambda cfg: None)
    page = Page(tmp_path / "page.html")
    judged = "action distance 0.25 to the held-out actions; TD error 3 in held-out steps"
    assert ["a", judged, "", "200 gradient steps", "3 s", "max_train_iter"] in page.rows
    assert f"minding eval {made.path} --env ID" in page.text
    assert f"minding record {made.path} --env ID" in page.text
    assert "Learning curve" in [name for name, *_ in page.pictures]


def test_a_page_needs_no_other_file_and_runs_nothing(tmp_path):
    made = make_run(tmp_path, "<script>", env_id='"><img src=x onerror=alert(1)>')
    write_page([made.path], tmp_path / "page.html", lambda cfg: [Setting("<b>", "<i>", "&amp;")])
    page = Page(tmp_path / "page.html")
    assert not {"script", "link", "iframe", "b", "i"} & {tag for tag, _ in page.tags}
    assert ["<b>", "<i>", "&amp;"] in page.rows
    assert page.text.count('ppo on "><img src=x onerror=alert(1)>') == 2
    assert "default-src 'none'" in str(page.tags)
    addresses = [value for _, attrs in page.tags for key, value in attrs.items() if key in ("src", "href")]
    assert len(addresses) == len(page.pictures) == 2
    assert all(value.startswith("data:") for value in addresses)


def test_seeds_are_averaged_with_their_interval(tmp_path):
    learn = [{"learn": {"gamma": gamma}} for gamma in (0.9, 0.5)]
    values = enumerate((80.0, 90.0, 130.0))
    runs = [make_run(tmp_path, f"seed_{n}", seed=n, value=v, policy=learn[0]).path for n, v in values]
    other = make_run(tmp_path, "other", policy=learn[1]).path
    third = [
        make_run(tmp_path, f"third_{n}", seed=n, value=90.0, policy={"learn": {"gamma": 0.7}}).path for n in range(3)
    ]
    found = write_page(
        [*runs, other], tmp_path / "page.html", lambda cfg: [Setting("g", cfg["policy"]["learn"]["gamma"], 1)]
    )
    assert [run.path.name for run in found] == ["seed_2", "other", "seed_1", "seed_0"]
    page = Page(tmp_path / "page.html")
    assert "4 runs, seeds 0, 1, 2" in page.text
    assert ["ppo, gamma=0.9", "3", *2 * ["100.0 [80.0, 130.0] (range)"]] in page.rows
    assert "Performance profile" not in page.text
    assert ["g", "0.9 (seed_2), 0.5 (other), 0.9 (seed_1), 0.9 (seed_0)", "1"] in page.rows
    # Of nine pairs three are won, and three are ties.
    write_page([*runs, *third], tmp_path / "page.html", lambda cfg: None)
    page = Page(tmp_path / "page.html")
    assert ["ppo, gamma=0.9", "ppo, gamma=0.7", "0.50 [0.00, 1.00]"] in page.rows
    assert "Performance profile" in page.text


def test_a_trace_of_reasonable_size_is_drawn(tmp_path):
    made = make_run(tmp_path)
    long = [{**event, "name": "$" + event["name"] * 40_000} for event in TRACE["traceEvents"][2:]]
    lanes = [{"ph": "M", "tid": lane, "args": {"name": "x" * 300_000}} for lane in range(2)]
    (made.path / "trace.json").write_text(json.dumps({"traceEvents": [*lanes, *long]}))
    start = time.perf_counter()
    write_page([made.path], tmp_path / "page.html", lambda cfg: None)
    assert time.perf_counter() - start < 10
    assert "Timeline" in str(Page(tmp_path / "page.html").tags)
    assert (tmp_path / "page.html").stat().st_size < 1 << 20
    lanes = [{"ph": "M", "tid": lane, "args": {"name": "x"}} for lane in range(10_000)]
    (made.path / "trace.json").write_text(json.dumps({"traceEvents": lanes}))
    write_page([made.path], tmp_path / "page.html", lambda cfg: None)
    assert "it is not a timeline of minding" in Page(tmp_path / "page.html").text


def test_unfinished_runs_and_damaged_files_are_stated(tmp_path):
    made = make_run(tmp_path)
    made.summary.unlink()
    made.metrics.write_text("env_step,train/loss\n1024,1.0\n")
    (made.path / "trace.json").write_text('{"traceEvents": [{"ph": "X"}]}')
    write_page([made.path], tmp_path / "page.html", lambda cfg: None)
    page = Page(tmp_path / "page.html")
    assert ["a", "none", "", "1,024 environment steps", "", "not ended"] in page.rows
    assert "holds no returns yet" in page.text
    assert "trace.json is not shown: it is not a timeline of minding" in page.text
    assert "The defaults of this algorithm are not known here" in page.text
    assert f"minding record {made.path} makes one" in page.text


def test_no_run_is_one_line_and_an_earlier_page_stays(tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("earlier")
    assert run(["report", str(tmp_path / "absent"), "-o", str(page)]) == 2
    assert "no run folder" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        write_page([tmp_path / "absent", tmp_path / "gone"], page, lambda cfg: None)
    assert page.read_text() == "earlier"
    made = make_run(tmp_path)
    assert run(["report", str(made.path), "-o", str(made.metrics / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_settings_that_are_not_defaults_are_those_of_the_preset():
    cfg = compile_run("cartpole_ppo", ["seed=7", "policy.learn.gamma=0.9"])
    found = {setting.path: (setting.value, setting.default) for setting in changed_settings(cfg)}
    preset = load_preset("cartpole_ppo")
    assert found["policy.learn.gamma"] == (0.9, 0.99)
    assert found["policy.learn.anneal_lr"] == (preset.policy.learn.anneal_lr, False)
    assert set(found) >= {f"policy.learn.{key}" for key in preset.policy.learn}
    assert not {"seed", "exp_name", "env.env_id"} & set(found)
    assert not any(path.startswith("env.spec") for path in found)
    assert changed_settings({"policy": {"type": "unknown"}, "env": {}}) is None


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser: chromium is not installed")
def test_a_browser_shows_the_page(tmp_path):
    made = make_run(tmp_path)
    write_page([made.path], tmp_path / "page.html", lambda cfg: [])
    # Run as root, Chromium insists on having no sandbox.
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    page = (tmp_path / "page.html").as_uri()
    out = subprocess.run([*command, "--dump-dom", page], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert "100.0 ± 10.0" in out.stdout
