"""Asynchronous runs of presets: without staleness the synchronous one bit by bit.

Updates are not compiled; `test_async_resume` and the tests of lanes compile theirs.
"""

import functools
import importlib.util

import pytest
from of_algorithms import SMALL, different, short_run

from benchmarks.fingerprint import fingerprint, tables_fingerprint
from minding import training
from minding.configs import compile_run, load_preset
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.engine.run.run_dir import RunDir

pytestmark = [pytest.mark.slow, pytest.mark.eager]


def outcome(preset, folder, *extra, resume=None):
    """Everything that must be the same: the last checkpoint, the metrics, the final evaluation."""
    user = load_preset(preset)
    # Fewer than a short run has.
    user.policy.get("collect", {}).pop("random_steps", None)
    settings = [*SMALL, *short_run(user.policy.type), *extra, f"run.out_dir={folder}", "exp_name=run"]
    cfg = compile_run(user, settings)
    run_dir = RunDir.create(cfg) if resume is None else RunDir(folder / "run")
    summary = training.train(cfg, run_dir, progress=False, resume=resume)
    state, manifest = load_checkpoint(newest_checkpoint(run_dir.checkpoints))
    del state["config"]
    figures = (summary.eval_return, summary.eval_std, summary.env_step, summary.train_iter, summary.stop_reason)
    found = {**fingerprint(state), **tables_fingerprint(run_dir), "final": figures}
    found["guarantee"] = manifest["guarantee"]
    # A synchronous run has no lag to log, and so other columns.
    return {name: value for name, value in found.items() if "policy_lag" not in name and "metrics/columns" not in name}


@pytest.fixture(scope="module")
def synchronous(tmp_path_factory):
    """The outcome of a synchronous run, which is made once: ``synchronous(preset, *extra)``."""
    return functools.cache(lambda preset, *extra: outcome(preset, tmp_path_factory.mktemp("sync"), *extra))


needs_mpe = pytest.mark.skipif(importlib.util.find_spec("mpe2") is None, reason="needs the extra 'mpe'")
ASYNC = ("lanes.async_mode=true", "lanes.collectors=1", "lanes.max_staleness=0")
THREADS = ("lanes.transport=threads",)
EPISODES = ("policy.other.buffer_size=300", "policy.learn.warmup=120")
"""What whole episodes of simple_spread need."""

GRAPH = ("policy.collect.backend=graph",)
TINY = ("policy.model.deter=16", "policy.model.latents=4", "policy.model.classes=4")
"""A world model that is updated and compiled quickly."""
SMALL_IMAGES = ("policy.model.cnn=[[4,4,2]]", "policy.model.cnn_dim=16")
"""Convolutions that take no time; what is sent stays as large."""
CASES = [
    *(pytest.param(name, (), id=name) for name in ("cartpole_ppo", "cartpole_dqn", "cartpole_impala")),
    # Each row that is stored changes the moments with which the next one is collected.
    pytest.param("pendulum_sac", ("policy.model.normalize_obs=true",), id="pendulum_sac, normalized"),
    pytest.param("pixelcatch_ppo", SMALL_IMAGES, id="pixelcatch_ppo"),
    pytest.param("masked_grid_ppo", (), id="masked_grid_ppo"),
    # What is shipped into a process answers alike there, see `policies/core`.
    pytest.param("simple_spread_qmix", (*THREADS, *EPISODES), id="simple_spread_qmix, threads", marks=needs_mpe),
    pytest.param("cartpole_a3c", THREADS, id="cartpole_a3c, threads"),
    pytest.param("tictactoe_alphazero", (), id="tictactoe_alphazero"),
    # Rewards for novelty, and so n-step returns, are computed where the policy learns.
    pytest.param("cartpole_dqn", (*THREADS, "policy.other.rnd.weight=0.5"), id="cartpole_dqn, novelty, threads"),
    # Its memory holds the state of the world model and the last action, and it draws latents while it acts.
    pytest.param("pendulum_dreamer", TINY, id="pendulum_dreamer"),
]


@pytest.mark.parametrize(("preset", "extra"), CASES)
def test_without_staleness_presets_end_as_synchronous_runs(preset, extra, tmp_path, synchronous):
    lanes = outcome(preset, tmp_path / "async", *extra, *ASYNC)
    assert different(lanes, synchronous(preset, *(key for key in extra if key not in THREADS))) == []
    assert lanes["guarantee"] == "exact"


def test_a_server_changes_nothing_for_one_collector(tmp_path, synchronous):
    # With a memory, and a graph in a process of its own. An evaluation on the way would need another one.
    keys = (*GRAPH, "policy.eval.freq=100000")
    lanes = outcome("tmaze_ppo", tmp_path / "async", *keys, *ASYNC, "lanes.inference=server")
    assert different(lanes, synchronous("tmaze_ppo", *keys)) == []
    assert lanes["guarantee"] == "exact"


def test_a_synchronous_run_goes_on_asynchronously_and_back(tmp_path, synchronous):
    whole = synchronous("cartpole_ppo")
    parts = [(("run.max_step=2",), None), (("run.max_step=4", *ASYNC), "latest"), ((), "latest")]
    for extra, resume in parts:
        last = outcome("cartpole_ppo", tmp_path / "parts", *extra, resume=resume)
    assert different(last, whole) == []


@pytest.mark.parametrize("preset", ["tmaze_ppo", "tictactoe_alphazero"])
def test_shards_in_processes_come_to_what_they_do_in_threads(preset, tmp_path):
    shards = ("lanes.async_mode=true", "lanes.shards=2", "lanes.max_staleness=0")
    processes = outcome(preset, tmp_path / "processes", *shards)
    threads = outcome(preset, tmp_path / "threads", *shards, *THREADS)
    assert different(processes, threads) == []
    assert processes["guarantee"] == "exact"
