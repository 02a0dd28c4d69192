"""Changes in folders that anyone may have prepared: nothing outside of them is written or removed, nothing waits."""

import contextlib
import errno
import os
import signal
import types
from pathlib import Path

import numpy as np
import pytest

from minding.configs import compile_run
from minding.engine import Config, ConfigError, MindingError, NonFiniteError, OnlineRLContext, RunDir, Task, files
from minding.engine.checkpoint import list_checkpoints, load_checkpoint, prune_checkpoints, save_checkpoint, set_aside
from minding.engine.config.compiler import save_config
from minding.engine.data.scratch import Scratch, remove_unfinished
from minding.engine.files import Folder, hidden, read_bounded, replace
from minding.engine.paths import absolute, without_home
from minding.engine.process.commands import Command
from minding.engine.run.lock import RunLock
from minding.engine.run.loggers import TensorBoardWriter
from minding.engine.run.metrics import CsvWriter
from minding.engine.run.plotting import save_figure
from minding.engine.run.pool import ModelPool
from minding.engine.run.status import StatusFile
from minding.engine.run.trackers import TrackedRun
from minding.envs.video import record_episodes
from minding.middleware import offline_data_saver
from minding.training.session import nan_batch_kept
from minding.training.tuning import _repair


@pytest.fixture(params=["handles", "paths"])
def handles(request, monkeypatch):
    """Systems that take names relative to an open folder, and others."""
    monkeypatch.setattr(files, "_HANDLES", request.param == "handles")


@pytest.fixture
def outside(tmp_path_factory):
    """A folder that belongs to the user and not to a run; must stay as it is."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "precious").write_text("env_step\n0\n")
    for name in ("iter_0", "iter_1"):
        (folder / name).mkdir()
        (folder / name / "state-00000000.json").write_text("precious")
    (folder / "version_1.safetensors").write_text("precious")
    before = contents(folder)
    yield folder
    assert contents(folder) == before


def contents(folder):
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folder(tmp_path, handles):
    with Folder(tmp_path / "folder", make=True) as opened:
        yield opened


def test_a_file_is_replaced_whole_or_not_at_all(folder, monkeypatch):
    folder.replace("a", b"one")
    assert (folder.path / "a").read_bytes() == b"one"

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "os", types.SimpleNamespace(**{**vars(os), "write": full}))
    for write in (lambda: folder.replace("a", b"two"), lambda: folder.append("a", b"two")):
        with pytest.raises(OSError, match="No space left"):
            write()
    assert folder.names() == ["a"]
    assert (folder.path / "a").read_bytes() == b"one"


def test_appends_are_whole_and_links_are_not_written_through(folder, outside):
    assert folder.append("a", b"one") == 3
    os.link(folder.path / "a", folder.path / "copy")
    assert folder.append("a", b"two") == 6
    assert [(folder.path / name).read_bytes() for name in ("a", "copy")] == [b"onetwo", b"one"]
    os.link(outside / "precious", folder.path / "b")
    with pytest.raises(OSError, match="other names"):
        folder.open("b", os.O_WRONLY | os.O_TRUNC)
    assert read_bounded(folder.path / "b", 100) == b"env_step\n0\n"


def test_everything_is_discarded_but_what_links_lead_to(folder, outside):
    (folder.path / "tree" / "inner").mkdir(parents=True)
    for place in (folder.path, folder.path / "tree", folder.path / "tree" / "inner"):
        (place / "link").symlink_to(outside)
        (place / "file").symlink_to(outside / "precious")
        os.mkfifo(place / "pipe")
    folder.discard(*folder.names())
    folder.discard("absent")
    assert folder.names() == []


@pytest.mark.parametrize("odd", ["link", "dangling", "pipe", "folder"])
def test_an_odd_file_is_replaced_without_opening_it(folder, outside, odd):
    put(odd, folder.path / "a", outside)
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR):
        with pytest.raises(OSError, match=r"symbolic link|not a regular file"):
            folder.open("a", flags)
    put(odd, folder.path / hidden(folder.path / "a").name, outside)
    if odd != "folder":
        folder.replace("a", b"one")
        assert (folder.path / "a").read_bytes() == b"one"
        assert not (folder.path / "a").is_symlink()


def put(odd, path, outside):
    if odd == "pipe":
        os.mkfifo(path)
    elif odd == "folder":
        path.mkdir()
    else:
        path.symlink_to(outside / {"link": "precious", "dangling": "absent"}[odd])


def test_a_folder_may_be_a_link_only_where_the_user_named_it(tmp_path, handles, outside):
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="a symbolic link, and nothing is changed through links"):
        Folder(tmp_path / "link")
    with pytest.raises(OSError, match="a symbolic link"):
        Folder(tmp_path / "link", make=True)
    with Folder(tmp_path / "link", follow=True) as folder:
        folder.write("new", b"")
        (outside / "new").unlink()
    with Folder(tmp_path, follow=True) as folder, pytest.raises(OSError, match="a symbolic link"):
        folder.folder("link")


# All that write in a run folder.


def _a_figure():
    return types.SimpleNamespace(savefig=lambda file, format: file.write(b"picture"), findobj=lambda kind: [])


def _nan(run, name="nan"):
    task = Task()
    task.start(False, OnlineRLContext(train_iter=3))
    with pytest.raises(NonFiniteError), nan_batch_kept(run / name, task):
        raise NonFiniteError("nan", {"obs": np.zeros(2, np.float32)}, {})


def _tensorboard(run):
    writer = TensorBoardWriter(run / "tb")
    writer.write({"a/b": 1.0}, 1)
    writer.close()


def _metrics(run):
    CsvWriter(run / "metrics.csv").write({"env_step": 1})


def _metrics_cut(run):
    writer = CsvWriter(run / "metrics.csv")
    writer.load_state_dict({"rows": 0, "columns": ["env_step"]})
    writer.write({"env_step": 1})


def _command(run):
    command = Command("minding.cli:main", ["--version"], run / "logs" / "seed_0.txt")
    try:
        command.start(os.getpid())
    finally:
        command.wait()


def _checkpoint(run):
    save_checkpoint(run / "ckpt" / "iter_2", {"x": np.zeros(2)}, {"train_iter": 2})


def _pool(run):
    ModelPool(run / "models").add({"w": np.zeros(2, np.float32)}, 1, 1)


def _tracked(run):
    TrackedRun("run", None, run / "trackers", {}).make_folder()


def _scratch(run):
    with Scratch(run / "data") as scratch:
        (scratch.folder / "x").write_text("x")


def _ended(run):
    with Scratch(run / "data"):
        remove_unfinished()


def _parts(run):
    saver = offline_data_saver(compile_run({"policy": {"type": "ppo"}, "env": {"env_id": "CartPole-v1"}}), run / "data")
    state = {"parts": [], "open": saver.state_dict()["open"], "held": None}
    saver.load_state_dict(state)
    saver._written = True
    saver.close()


def _film(run):
    cfg = {"env_id": "CartPole-v1"}
    random = types.SimpleNamespace(reset=lambda: None, forward=lambda obs: np.zeros(1, np.int64))
    record_episodes(cfg, random, run / "episode.gif", 0, max_steps=2)


WRITERS = {
    "lock": (lambda run: RunLock(run).acquire(), [".lock"]),
    "metrics": (_metrics, ["metrics.csv"]),
    "metrics after a resume": (_metrics_cut, ["metrics.csv", ".metrics.csv.minding-tmp"]),
    "config": (lambda run: save_config(Config(seed=1), run / "config.yaml"), ["config.yaml", "config.yaml.new"]),
    "status": (lambda run: StatusFile(run / "status.json").write(OnlineRLContext(), 1, []), ["status.json"]),
    "summary": (lambda run: RunDir(run).write_summary({}), ["summary.json", ".summary.json.minding-tmp"]),
    "curve": (lambda run: save_figure(_a_figure(), run / "curve.png"), ["curve.png", ".new-curve.png"]),
    "page": (lambda run: replace(run / "report.html", "x"), ["report.html", ".report.html.minding-tmp"]),
    "TensorBoard": (_tensorboard, ["tb"]),
    "evidence": (_nan, ["nan", "nan/iter_3.json", "nan/.iter_3.safetensors.minding-tmp"]),
    "checkpoint": (_checkpoint, ["ckpt", "ckpt/.iter_2.minding-tmp", "ckpt/iter_2"]),
    "old checkpoints": (lambda run: prune_checkpoints(run / "ckpt", 1), ["ckpt"]),
    "left checkpoint": (lambda run: set_aside(run / "ckpt" / "iter_1"), ["ckpt"]),
    "pool": (_pool, ["models", "models/index.jsonl", "models/.version_1.safetensors.minding-tmp"]),
    "tracker": (_tracked, ["trackers", "trackers/wandb"]),
    "data": (_scratch, [".data.minding-tmp", "data"]),
    "data of a process that ends": (_ended, [".data.minding-tmp"]),
    "parts of data": (_parts, ["data.parts", "data.parts/000000"]),
    "film": (_film, ["episode.gif", ".episode.gif.minding-tmp"]),
    "journal of a search": (lambda run: _repair(run / "journal.log"), ["journal.log"]),
    "output of a process": (_command, ["logs", "logs/seed_0.txt"]),
}


CASES = [(name, place) for name, (_, places) in WRITERS.items() for place in places]
FOLDERS = ("ckpt", "models", "tb", "nan", "trackers", "wandb", "logs", "data", "parts", "iter_2", "000000")


@pytest.mark.parametrize("odd", ["link", "pipe"])
@pytest.mark.parametrize(("name", "place"), CASES)
def test_no_writer_of_a_run_follows_a_link_or_waits_for_a_pipe(name, place, odd, tmp_path, outside):
    run, path = tmp_path / "run", tmp_path / "run" / place
    path.parent.mkdir(parents=True)
    is_folder = path.name.strip(".").removesuffix(".minding-tmp").rpartition(".")[2] in FOLDERS
    os.mkfifo(path) if odd == "pipe" else path.symlink_to(outside if is_folder else outside / "precious")

    def waits(*_):
        raise AssertionError(f"{name} waits for {place}")

    earlier = signal.signal(signal.SIGALRM, waits)
    signal.alarm(20)
    try:
        # Most refuse it; those that replace files put theirs in its place.
        with contextlib.suppress(OSError, MindingError):
            WRITERS[name][0](run)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)


def test_a_run_whose_folder_has_links_is_refused_first(tmp_path, outside):
    for place in ("ckpt", "metrics.csv"):
        run = tmp_path / f"run {place}"
        run.mkdir()
        (run / place).symlink_to(outside)
        with pytest.raises(ConfigError, match=rf"{place}' is a symbolic link, .*: put what it leads to in its place"):
            RunLock(run).acquire()
        assert os.listdir(run) == [place]
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    save_checkpoint(tmp_path / "run" / "ckpt" / "iter_1", {"x": 1}, {"train_iter": 1})
    with RunLock(tmp_path / "linked"):
        save_checkpoint(tmp_path / "linked" / "ckpt" / "iter_2", {"x": 2}, {"train_iter": 2})
    assert [load_checkpoint(path)[0]["x"] for path in list_checkpoints(tmp_path / "run" / "ckpt")] == [1, 2]


def test_only_a_tilde_at_the_beginning_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("./~") == absolute("./~/") == tmp_path / "~"
    assert absolute("~/runs") == Path.home() / "runs"
    assert without_home(str(Path.home() / "data")) == "~/data"
    assert without_home(str(tmp_path)) == str(tmp_path)
