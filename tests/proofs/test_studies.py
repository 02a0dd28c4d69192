"""The programs of single studies: their parts by numbers, and what they have measured."""

import copy
import json

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, space_of

from minding.engine.data.batch import RowLayout
from minding.policies import get_policy_class, sac
from proofs import benchmark_sets
from proofs.critics_first import CriticsFirstCell
from proofs.defaults import NAME, online, small_task, steps_of
from proofs.families import draw_families, families_table
from proofs.mujoco_table import aggregate_table, best_of_means, replaced_table
from proofs.runs import ROOT, Results, RunFailed
from proofs.scale_tasks import Dispatcher

# The SAC whose critics step before the actor

BATCH = 16


def stepped(policy, state, batch):
    """All parameters after one step from a state, by name."""
    policy.load_state_dict(copy.deepcopy(state))
    policy.learn_mode.forward(batch)
    return {name: value.copy() for name, value in policy.state_dict()["params"].items()}


def of(part, params):
    return {name: value for name, value in params.items() if name.startswith(f"{part}.")}


def test_the_actor_steps_as_in_sac_after_its_critics(tiny_config, monkeypatch):
    raw = {"policy.learn.alpha": 0.2, "policy.model.normalize_obs": False}
    cfg = tiny_config("sac", VECTOR, space_of(2), **raw)
    policy = get_policy_class("sac")(cfg)
    monkeypatch.setattr(sac.SAC, "step_class", CriticsFirstCell)
    other = get_policy_class("sac")(cfg)
    rows = rows_of(RowLayout(policy.learn_mode.fields), BATCH, np.random.default_rng(0))
    batch, same = (Batches(x, BATCH)(rows, [range(BATCH)]) for x in (policy, other))
    state = policy.state_dict()
    at_once, critics_first = stepped(policy, state, batch), stepped(other, state, same)
    for part in ("critics", "targets"):
        assert of(part, at_once)
        for name, value in of(part, at_once).items():
            np.testing.assert_array_equal(critics_first[name], value, err_msg=name)
    assert any((critics_first[name] != value).any() for name, value in of("net", at_once).items())
    # Critics that are ahead already
    ahead = copy.deepcopy(state)
    ahead["params"].update(of("critics", at_once))
    for name, value in of("net", stepped(policy, ahead, batch)).items():
        np.testing.assert_allclose(critics_first[name], value, rtol=1e-6, atol=1e-8, err_msg=name)
    assert critics_first["log_alpha"] == pytest.approx(at_once["log_alpha"])


FOUND = json.loads((ROOT / "docs" / "results" / f"{NAME}.json").read_text(encoding="utf-8"))


def test_every_algorithm_that_learns_online_is_measured():
    assert sorted(FOUND) == sorted(online())


@pytest.mark.parametrize("algorithm", FOUND)
def test_its_defaults_learn_the_small_task_of_its_kind(algorithm):
    row, task = FOUND[algorithm], small_task(algorithm)
    assert (row["env_id"], row["env_step"], row["floor"]) == (task.env_id, steps_of(algorithm), task.floor)
    assert row["return"] >= task.floor


def test_a_job_that_is_worked_on_leaves_an_empty_place_behind():
    env = Dispatcher()
    env.reset(seed=0)
    # One job of two hours with a weight of 5, which is due in an hour.
    env._jobs[:] = 0
    env._jobs[3] = [1, 2, 1, 5, 0, 1, 0, 0]
    env.ARRIVALS = 0.0
    assert env.step(0)[1] == 0
    assert [env.step(4)[1] for _ in range(2)] == [-5.0, 2.0]
    assert not env._observation()["observation"].any()


def row(seed, mean, returns, steps=(50_000, 100_000), **more):
    best = {"env_step": 50_000, "eval_mean": max(returns), "eval_episodes": 10}
    head = {"preset": "hopper_ppo", "seed": seed, "config_hash": f"{seed}", "settings_hash": "a"}
    curve = {"env_step": list(steps), "eval_return": list(returns)}
    return {**head, "eval_mean": mean, "env_step": 1_001_472, "best": best, "curve": curve, **more}


def test_the_best_is_the_highest_mean_over_seeds():
    rows = [row(0, 0.0, [100.0, 300.0]), row(1, 0.0, [400.0, 240.0])]
    # The means over seeds are 250 and 270; the deviation at the second step is that of 300 and 240.
    assert best_of_means(rows) == (270.0, 30.0)
    assert best_of_means(rows[:1]) == (300.0, 0.0)
    # Steps that only one seed has are left out.
    assert best_of_means([row(0, 0.0, [1.0, 9.0]), row(1, 0.0, [3.0, 8.0], (50_000, 120_000))]) == (2.0, 1.0)


def test_environments_are_joined_in_units_of_published_means(tmp_path):
    published = {"mujoco": {"Tianshou": {"scores": {"hopper_ppo": [200.0, 1.0], "ant_ppo": [100.0, 1.0]}}}}
    results = Results(tmp_path)
    for line in (
        row(0, 100.0, [1.0, 2.0]),
        row(1, 300.0, [1.0, 2.0]),
        {**row(0, 90.0, [1.0, 2.0]), "preset": "ant_ppo"},
    ):
        results.append("learning", line)
    (tmp_path / "results" / "published.json").write_text(json.dumps(published))
    # Of 0.5, 1.5 and 0.9 none is left out: with both (0.5 + 1.5 + 0.9) / 3.
    lines = aggregate_table(results).splitlines()
    assert lines[2].startswith("| PPO | 2 | 3 | 0.97 | 0.97 | ")
    assert lines[3] == "| SAC | 0 | 0 | not measured |  |  |"


def test_a_run_that_was_made_again_stands_beside_the_one_before(tmp_path):
    results = Results(tmp_path)
    for line in (
        {**row(0, 10.0, [1.0]), "settings_hash": "other"},
        row(0, 1000.0, [1.0, 2.0]),
        row(1, 300.0, [1.0, 2.0]),
        row(0, 2000.4, [1.0, 2.0]),
    ):
        results.append("learning", line)
    assert replaced_table(results).splitlines()[2:] == ["| Hopper-v5 | 0 | 1,000 | 2,000 |"]


def test_families_are_in_published_scores_above_random_play(tmp_path):
    families = {"scores": {"lunarlander_ppo": 200.0, "lunarlander_dqn": 150.0}, "random": {"LunarLander-v3": -200.0}}
    scores = [{"SB3 zoo": [100.0, 1.0], "Tianshou": [250.0]}[side] for side in ("SB3 zoo", "Tianshou")]
    published = {side: {"scores": {"hopper_ppo": score}} for side, score in zip(("SB3 zoo", "Tianshou"), scores)}
    results = Results(tmp_path)
    draw_families(results)
    assert "not measured" in families_table(results)
    for preset, seed, value in (("lunarlander_ppo", 0, 200.0), ("lunarlander_ppo", 1, 0.0), ("hopper_ppo", 0, 150.0)):
        results.append("learning", {**row(seed, value, [1.0, 2.0]), "preset": preset})
    written = {"mujoco": published, "families": families}
    (tmp_path / "results" / "published.json").write_text(json.dumps(written))
    lines = families_table(results).splitlines()
    assert lines[3] == "| LunarLander | 1 | 2 | 0.75 | 0.50 – 1.00 | 0.75 |  |"
    assert lines[4] == "| MuJoCo, PPO | 1 | 1 | 1.50 |  | 1.50 | 2.50 |"
    (tmp_path / "images").mkdir()
    draw_families(results)
    assert (tmp_path / "images" / "families.png").is_file()


def test_a_medium_policy_is_a_third_of_the_way_to_the_expert():
    steps = np.array([10, 20, 30, 40])
    # (0 - -300) / 3 = 100 above random play, which is at -300.
    assert benchmark_sets.medium_step(steps, np.array([-201.0, -200.0, -50.0, 0.0]), random=-300.0) == 20
    with pytest.raises(RunFailed, match=r"above random play, 0\.0"):
        benchmark_sets.medium_step(steps, np.array([5.0, 6.0, 7.0, -1.0]), random=0.0)
