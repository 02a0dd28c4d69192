"""What was learned from recorded data, beside the data, BC and constant rewards."""

import types

import numpy as np
import pytest

from minding.configs import compile_run, load_preset
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.data.dataset import Dataset
from minding.training.assembly import build
from proofs import offline_tables
from proofs.constant_rewards import Constant, minus_one, plus_one
from proofs.coverage import SETS, draw
from proofs.data_sets import data_sets
from proofs.recordings import folder_name
from proofs.runs import Results
from proofs.studies import STUDIES

REPLAY = {"name": "pendulum_sac_replay", "steps": 15_000, "episodes": 75, "return_mean": -384.0, "return_std": 9.0}


def record(preset, seed, mean, **more):
    command = f"minding train {preset} seed={seed} chain=x"
    curve = {"train_iter": [100, 200], "eval_return": [mean - 50.0, mean + 30.0]}
    head = {"preset": preset, "seed": seed, "settings_hash": "a", "command": command}
    return {**head, "eval_mean": mean, "eval_std": 1.0, "curve": curve, **more}


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path)


@pytest.fixture
def filled(results):
    """BC, a preset on its own data with one miss, and one on the data of others."""
    for seed, mean in enumerate((-450.0, -486.0)):
        results.append("offline", record("bc", seed, mean, data=REPLAY))
    for seed, mean in enumerate((-136.0, -653.0)):
        results.append("learning", record("pendulum_awac", seed, mean))
    results.append("offline", record("pendulum_iql", 0, -239.4, data=REPLAY))
    return results


def test_results_on_other_data_and_of_other_settings_are_kept_apart(filled):
    filled.append("offline", record("bc", 0, 0.0, data={**REPLAY, "name": "elsewhere"}))
    filled.append("offline", record("pendulum_iql", 1, 7.0, data=REPLAY, settings_hash="b"))
    found = filled.on_data("pendulum_sac_replay")
    assert [each["eval_mean"] for each in found["bc"]] == [-450.0, -486.0]
    assert [each["eval_mean"] for each in found["pendulum_iql"]] == [7.0]


def test_pictures_are_drawn_of_what_was_measured(filled, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "results" / "switch.json").write_text(
        '{"offline": {"train_iter": [1, 2], "eval_return": [-900, -150]}, '
        '"online": {"env_step": [500], "eval_return": [-160]}}'
    )
    offline_tables.draw(filled)
    names = {path.name for path in (tmp_path / "images").iterdir()}
    assert names == {"offline_best_last.png", "offline_switch.png"}


def test_coverage_is_drawn_of_the_data_of_presets(tmp_path):
    pytest.importorskip("matplotlib")
    known = data_sets()
    assert {"random", "medium + expert", "replay"} <= {
        name for name, sources in SETS.items() if folder_name(sources, "Pendulum-v1") in known
    }
    angles = np.linspace(-3, 3, 51)
    obs = np.stack([np.cos(angles), np.sin(angles), angles], axis=1)
    episode = {"obs": obs, "action": np.zeros((50, 1)), "reward": np.full(50, -2.0), "terminated": False}
    toy = Dataset.of_episodes([{**episode, "truncated": True}])
    draw({"a": toy, "b": toy}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


@pytest.mark.parametrize(("chain", "value"), [(plus_one, 1.0), (minus_one, -1.0)])
def test_a_constant_takes_the_place_of_every_reward_in_the_chain_of_gail(chain, value):
    estimate = Constant(value).estimate(types.SimpleNamespace(shape=(3, 2)))
    assert estimate.reward.dtype == np.float32
    np.testing.assert_array_equal(estimate.reward, np.full((3, 2), value))
    name = f"constant {'+' if value > 0 else '-'}1"
    changes = STUDIES["gail_acrobot"].variants[name].changes
    assert changes == (f"chain=proofs.constant_rewards:{chain.__name__}",)
    cfg = compile_run(load_preset("acrobot_gail"), [*changes, "env.collector_env_num=1", "env.evaluator_env_num=1"])
    task = Task()
    with task.start(ctx=OnlineRLContext()):
        build(task, cfg)
        used = [line.split()[1] for line in repr(task).splitlines() if line[:1].isdigit()]
    expected = ["interaction_evaluator", "StepCollector", "reward_estimator", "gae_estimator", "multistep_trainer"]
    assert used == expected
