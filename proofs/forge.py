"""Forged and damaged run folders: contents that no run writes, in files whose checksums are right."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml
from safetensors.numpy import load, save

from minding.engine import Config
from minding.engine.checkpoint.manifest import MANIFEST, encode_manifest, sha256
from minding.engine.config import trust
from minding.engine.config.compiler import config_text, load_config
from minding.engine.run.run_dir import RunDir
from proofs.damage import DAMAGES

BIG = 10**15
Forge = Callable[[Path, random.Random], None]


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, BIG, 10**400, 1.5, 1e308, float("nan"), float("inf"), "", "x" * 50_000, "\0\x1b[2J"),
    *("../../../../etc/passwd", "os:system", [], {}, [0] * 10_000, [BIG], _deep(200), {"items": 1}),
    {"$array": "/policy/params/none", "shape": [BIG]},
    {"$blocks": [0, BIG], "rows": 1, "shape": [BIG], "dtype": "float64"},
    {"$blocks": [0, 1], "rows": BIG, "shape": [BIG, BIG], "dtype": "object"},
)
"""What takes the place of a value."""
BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))])
LONG = f"a: &a {'x' * 9_990}\nenv: {{env_kwargs: {{k: [{', '.join(['*a'] * 40_000)}]}}}}\n"
TEXTS = (
    *("", "[", "\0", "- 1", "a: !!python/object/apply:os.system [exit]", BOMB, "a: &a [*a]", "a: " + "[" * 100_000),
    *("a: " + "9" * 100_000, "env_step,x\n" + "1," * 100_000, "env_step\n" + '"' * 200_000, "env_step\n\0\n1\n"),
    *("env_step," + ",".join(map(str, range(50_000))), "env_step\n1e400\n-1e400\nnan\n", "\ufeffenv_step\n1\n\n\n2"),
    *("on: 1", "1: {a: 1}", "env: {null: 1}", LONG),
)
"""What takes the place of a text file."""


def forge_value(tree: Any, rng: random.Random) -> None:
    """Replaces, removes, adds or doubles one value somewhere in a tree of dicts and lists, in place."""
    places = [place for place in _places(tree)]
    node, key = rng.choice(places)
    what = rng.randrange(6)
    if what == 0 and isinstance(node, dict):
        del node[key]
    elif what == 1 and isinstance(node, dict):
        node[rng.choice(["items", "", "../x", "$array", "extra"])] = copy.deepcopy(rng.choice(VALUES))
    elif what == 2:
        other, place = rng.choice(places)
        node[key] = copy.deepcopy(other[place])
    else:
        node[key] = copy.deepcopy(rng.choice(VALUES))


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    keys = node if isinstance(node, dict) else range(min(len(node), 5)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from _places(node[key])


def forge_state(checkpoint: Path, rng: random.Random) -> None:
    """A value in the part of the state that is JSON."""
    (path,) = checkpoint.glob("state-*")
    tree = json.loads(path.read_bytes())
    forge_value(tree, rng)
    text = b"[" * 100_000 + b"]" * 100_000 if rng.random() < 0.05 else json.dumps(tree).encode()
    path.write_bytes(text)
    sign(checkpoint)


def forge_arrays(checkpoint: Path, rng: random.Random) -> None:
    """An array of another shape or dtype, with NaN, missing, or a file that is not arrays."""
    path = rng.choice([*checkpoint.glob("arrays-*"), *checkpoint.glob("block-*")])
    arrays = load(path.read_bytes())
    name = rng.choice(sorted(arrays))
    change: Callable[[np.ndarray], np.ndarray] = rng.choice(
        (
            lambda a: a.astype(np.float64),
            lambda a: a.astype(np.int8),
            lambda a: np.full(a.shape, np.nan, np.float32),
            lambda a: np.zeros((*a.shape, 2), a.dtype),
            lambda a: a.ravel()[:0],
            lambda a: np.zeros(300_000, a.dtype),
        )
    )
    arrays[name] = change(arrays[name])
    if rng.random() < 0.3:
        arrays[rng.choice(["extra", "/policy"])] = arrays.pop(name)
    data = save(arrays)
    if rng.random() < 0.3:
        length = rng.choice([0, 1, len(data), 1 << 23, 1 << 60])
        data = struct.pack("<Q", length) + rng.choice([data[8:], b"{" * 1000, b"[]", b" " * 1000])
    path.write_bytes(data)
    sign(checkpoint)


def forge_manifest(checkpoint: Path, rng: random.Random) -> None:
    """A value in the manifest."""
    manifest = json.loads((checkpoint / MANIFEST).read_bytes())
    manifest.pop("sha256")
    forge_value(manifest, rng)
    with contextlib.suppress(RecursionError, TypeError):
        (checkpoint / MANIFEST).write_bytes(encode_manifest(manifest))


def replace_file(checkpoint: Path, rng: random.Random) -> None:
    """A device, a pipe, a folder, a link, a file of holes, or nothing in the place of a file."""
    path = rng.choice(sorted(checkpoint.iterdir()))
    put_odd_file(path, rng)
    if rng.random() < 0.5 and path.name != MANIFEST:
        manifest = json.loads((checkpoint / MANIFEST).read_bytes())
        manifest.pop("sha256")
        manifest["files"][path.name]["size"] = path.stat().st_size if path.exists() else 0
        (checkpoint / MANIFEST).write_bytes(encode_manifest(manifest))


def put_odd_file(path: Path, rng: random.Random) -> None:
    """Puts something that is not a usual file where `path` is."""
    size = path.stat().st_size
    path.unlink()
    kind = rng.randrange(7)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.touch()
        os.truncate(path, rng.choice([size, 1 << 34, 1 << 42]))
    elif kind < 6:
        path.symlink_to(("/dev/zero", path, "/proc/self/mem")[kind - 3])


def damage_file(folder: Path, rng: random.Random) -> None:
    """A random damage that no checksum fits."""
    path = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    data = bytearray(path.read_bytes())
    rng.choice(DAMAGES)(data, rng)
    path.write_bytes(data)


def sign(checkpoint: Path) -> None:
    """Makes sizes and checksums of a checkpoint those of its files as they are."""
    manifest = json.loads((checkpoint / MANIFEST).read_bytes())
    manifest.pop("sha256")
    for name, entry in manifest["files"].items():
        data = (checkpoint / name).read_bytes()
        entry.update(size=len(data), sha256=sha256(data))
    (checkpoint / MANIFEST).write_bytes(encode_manifest(manifest))


def forge_config(path: Path, rng: random.Random) -> None:
    """A value in a configuration, or another text or file in its place."""
    if rng.random() < 0.25:
        forge_text(path, rng)
        return
    tree = yaml.safe_load(path.read_text())
    for _ in range(rng.choice([1, 1, 3])):
        forge_value(tree, rng)
    with contextlib.suppress(RecursionError):
        path.write_text(yaml.safe_dump(tree))


def forge_text(path: Path, rng: random.Random) -> None:
    """Another text, a damaged one, or something odd in the place of a text file."""
    kind = rng.randrange(3)
    if kind == 0:
        put_odd_file(path, rng)
    elif kind == 1:
        path.write_text(rng.choice(TEXTS))
    else:
        data = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 5, 50])):
            rng.choice(DAMAGES[:2])(data, rng)
        path.write_bytes(data)


TEMPORARY = (".metrics.csv.minding-tmp", ".summary.json.minding-tmp", "config.yaml.new", ".new-report.html", ".lock")
"""Names that a run writes besides its files; links may wait there."""
INSIDE = (
    "models/index.jsonl",
    "models/.index.jsonl.minding-tmp",
    "ckpt/.best.minding-tmp",
    "ckpt/best",
    "trackers/wandb",
)
FOLDERS = ("models", "tb", "nan", "trackers", "ckpt", "logs", "data")


def make_outside(folder: Path) -> None:
    """A folder of the user's beside a run, with files that following a link would change or remove."""
    for name in ("precious", "metrics.csv", "index.jsonl", "version_1.safetensors"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("env_step\n0\n")
    for name in ("iter_1", "iter_2", "events"):
        (folder / name).mkdir()
        (folder / name / "state-00000000.json").write_text("precious")


def contents_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder, and their contents."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def plant(run: Path, rng: random.Random, put: Callable[[Path, bool], None]) -> None:
    """Replaces one or two files or folders of a run, or adds names that it writes, by what `put` makes there."""
    there = [str(path.relative_to(run)) for path in sorted(run.rglob("*"))]
    for name in rng.sample([*there, *TEMPORARY, *INSIDE, *FOLDERS], rng.choice([1, 1, 2])):
        path = run / name
        is_folder = path.is_dir() or name in FOLDERS or path.name.strip(".").startswith(("iter_", "best"))
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            put(path, is_folder)


PACKAGES = ("smac", "smacv2", "wandb", "mlflow", "swanlab", "envpool", "mpe2", "ale_py", "minigrid", "optuna", "own")


def plant_packages(folder: Path, rng: random.Random, mark: Path) -> None:
    """Puts packages into a folder that are called like optional ones; importing one makes the file `mark`."""
    for name in rng.sample(PACKAGES, 4):
        (folder / name).mkdir(exist_ok=True)
        for module in ("__init__", "env"):
            (folder / name / f"{module}.py").write_text(f"open({str(mark)!r}, 'w')\nclass Env: ...\n")


def name_packages(path: Path, rng: random.Random) -> None:
    """Lets a configuration name something of these packages, in a random place."""
    tree = yaml.safe_load(path.read_text())
    name = rng.choice(PACKAGES)
    what = rng.randrange(7)
    if what == 0:
        tree["env"]["env_id"] = rng.choice([f"{name}/3m", f"{name}.env:Env", f"{name}:Env", f"{name}:Own-v0"])
        tree["env"].pop("spec", None)
    elif what == 1:
        tree["env"]["env_kwargs"] = {"x": rng.choice([f"{name}.env", f"{name}:Env", {f"{name}.env": 1}])}
    elif what == 2:
        tree["run"]["loggers"] = [rng.choice(["wandb", "mlflow", "swanlab"])]
    elif what == 3:
        tree["env"]["backend"] = "envpool"
    else:
        key = ("chain", "use", "encoder")[what % 3]
        where = tree["policy"]["model"] if key == "encoder" else tree
        where[key] = [f"{name}:Env"] if key == "use" else f"{name}:Env"
    path.write_text(yaml.safe_dump(tree))


PROJECT = "forged_project"
"""A package of the user's own, with an environment."""
_MAZE = f"import {PROJECT}.walls\nfrom gymnasium.envs.classic_control.cartpole import CartPoleEnv as Maze\n"


def make_project(folder: Path) -> Path:
    """Makes a user's package in a folder, which becomes the current one, and a run that he makes there with it."""
    package = folder / PROJECT
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "walls.py").write_text("")
    (package / "maze.py").write_text(_MAZE)
    os.chdir(folder)
    cfg = Config(exp_name="maze", run={"out_dir": "runs"}, env={"env_id": f"{PROJECT}.maze:Maze"})
    return RunDir.create(Config({**cfg, "policy": {"type": "ppo"}, "seed": 0})).path


def forge_claim(run: Path, rng: random.Random, mark: Path) -> None:
    """Forges a signed copy of the run of `make_project`, which claims to be the user's own, or what it names; code that
    the forger added makes the file `mark`."""
    config, package = run / "config.yaml", Path(PROJECT)
    text, evil = config.read_text(), f"open({str(mark)!r}, 'w')\n"
    # Only root can give a file to somebody else.
    what = rng.choice([0, 1, 2, 3, 5, 6, 7, *([4] if os.geteuid() == 0 else [])])
    if what == 0:
        for module in rng.sample(["maze", "__init__"], rng.randint(1, 2)):
            (package / f"{module}.py").write_text(evil + (package / f"{module}.py").read_text())
    elif what == 1:
        # The same module in the forger's folder, which is the current one, beside another that it imports.
        shutil.copytree(package, run / PROJECT)
        (run / PROJECT / "walls.py").write_text(evil)
        os.chdir(run)
    elif what == 2:
        config.write_text(re.sub("[0-9a-f]{64}", lambda _: rng.randbytes(32).hex(), text))
    elif what == 3:
        # Who knows how a signature is made lacks the key.
        with mock.patch.object(trust, "_key", return_value=rng.choice([b"", bytes(32), rng.randbytes(32)])):
            trust.save_own(load_config(config), config)
    elif what == 4:
        os.chown(config, rng.randint(1000, 60_000), -1)
    else:
        tree = load_config(config)
        if what == 5:
            (run / "evil.py").write_text(f"{evil}class Maze: ...\n")
            os.chdir(run)
            tree["env"]["env_id"] = "evil:Maze"
        elif what == 6:
            tree["env"]["env_kwargs"] = {"render_mode": rng.choice(["human", "rgb_array"])}
        else:
            tree["lanes"] = {"async_mode": True, "transport": "ray", "address": "127.0.0.1:6399", "insecure": True}
        config.write_text(config_text(tree) + text[text.rindex("# ") :])


CHECKPOINT_FORGES: tuple[Forge, ...] = (forge_state, forge_arrays, forge_manifest, replace_file, damage_file)


@contextlib.contextmanager
def copied(original: Path, place: Path) -> Iterator[Path]:
    """`original` as `place`, for the time of one case."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(original, place)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
