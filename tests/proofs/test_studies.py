"""The programs of single studies: their parts by numbers, and what they have measured."""

import copy
import json
import types

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, space_of
from gymnasium.utils.env_checker import check_env

from minding import cli, training
from minding.configs import compile_run, load_preset
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.data.batch import RowLayout
from minding.engine.data.dataset import Dataset
from minding.engine.run.run_dir import RunDir
from minding.engine.search.opponents import Solution
from minding.envs.games.boards.tic_tac_toe import TicTacToe
from minding.policies import get_policy_class, sac
from minding.training.assembly import build
from proofs import benchmark_sets, recordings, tag_crossplay
from proofs.board_lines import Evaluated, Lines, lines_against, lines_of_run
from proofs.constant_rewards import Constant, minus_one, plus_one
from proofs.coverage import SETS, draw
from proofs.critics_first import CriticsFirstCell
from proofs.data_sets import data_sets
from proofs.defaults import NAME, online, small_task, steps_of
from proofs.families import draw_families, families_table
from proofs.mujoco_table import aggregate_table, best_of_means, draw_grid
from proofs.peer_defaults import NAME as PEER
from proofs.peer_defaults import improvement, peer_defaults_table
from proofs.recordings import folder_name
from proofs.runs import ROOT, Results, RunFailed
from proofs.scale_tasks import Dispatcher, Room, Servers, Spot, Warehouse
from proofs.studies import STUDIES

# Lines of play


GAME = TicTacToe()


class FirstLegal:
    name = "first legal"

    def __call__(self, game, state, rng):
        return game.legal(state).argmax(axis=1)


class FirstOptimal:
    name = "first optimal"
    solution = Solution(GAME)

    def __call__(self, game, state, rng):
        return self.solution.optimal(state).argmax(axis=1)


def counted(state, own):
    """[won, drawn, lost] of `FirstLegal`, one position at a time."""
    total = np.zeros(3, int)
    legal = np.flatnonzero(GAME.legal(state)[0])
    for action in legal[:1] if own else legal:
        following, over, outcome = GAME.play(state, np.array([action]))
        if over[0]:
            # A ply that wins leaves -1 for the player to move next.
            total[1 if outcome[0] == 0 else (0 if own else 2)] += 1
        else:
            total += counted(following, not own)
    return total


@pytest.mark.parametrize("first", [True, False])
def test_all_lines_are_counted(first):
    found = lines_against(GAME, FirstLegal(), first)
    assert found == Lines(*counted(GAME.initial(1), first))
    assert found.lost > 0
    assert lines_against(GAME, FirstOptimal(), first).lost == 0


def test_a_policy_plays_the_lines_as_it_plays_in_evaluations():
    small = ("policy.model.hidden=[8]", "policy.collect.simulations=2")
    policy = training.make_policy(compile_run("tictactoe_muzero", small), modes=("eval",))
    found = lines_against(GAME, Evaluated(policy.eval_mode), True)
    assert min(found.won, found.drawn, found.lost) > 0
    assert sum(found) <= 8 * 6 * 4 * 2


@pytest.mark.slow
def test_the_agent_of_the_preset_loses_no_line(tmp_path):
    # With half of its steps, and hardly an evaluation.
    less = ["run.max_env_step=16000", "policy.eval.freq=1000000", "run.final_episodes=2"]
    cfg = compile_run("tictactoe_alphazero", [*less, f"run.out_dir={tmp_path}"])
    run_dir = RunDir.create(cfg)
    training.train(cfg, run_dir, progress=False)
    for lines in lines_of_run(run_dir).values():
        assert [each.lost for each in lines] == [0, 0]


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


# Defaults


FOUND = json.loads((ROOT / "docs" / "results" / f"{NAME}.json").read_text(encoding="utf-8"))


def test_every_algorithm_that_learns_online_is_measured():
    assert sorted(FOUND) == sorted(online())


@pytest.mark.parametrize("algorithm", FOUND)
def test_its_defaults_learn_the_small_task_of_its_kind(algorithm):
    row, task = FOUND[algorithm], small_task(algorithm)
    assert (row["env_id"], row["env_step"], row["floor"]) == (task.env_id, steps_of(algorithm), task.floor)
    assert row["return"] >= task.floor


def test_a_run_is_better_with_the_share_of_pairs_that_it_wins():
    assert improvement([1.0, 3.0], [2.0, 3.0]) == (0 + 0 + 1 + 0.5) / 4
    assert improvement([5.0], [1.0, 2.0, 3.0]) == 1.0


def test_the_table_of_defaults_shows_both_sides_twice(tmp_path):
    results, name = Results(tmp_path), "ppo:LunarLander-v3"
    for side, seed, means in (("minding", 0, (-20, 200)), ("minding", 1, (0, 100)), ("SB3", 0, (-10, 50))):
        evaluations = [{"mean": mean, "seconds": 10 * k} for k, mean in enumerate(means, 1)]
        results.append(PEER, {"side": side, "task": name, "seed": seed, "evaluations": evaluations})
    table = peer_defaults_table(results)
    first, second = (line for line in table.splitlines() if line.startswith("| PPO | LunarLander-v3"))
    assert first.endswith("| 50,000 | -10.0 (-20.0 to 0.0; 2) | -10.0 |")
    assert second.endswith("| 100,000 | 150.0 (100.0 to 200.0; 2) | 50.0 |")
    assert "a probability of 0.75, the mean over rows; it is above one half in 1 of them" in peer_defaults_table(
        results
    )
    assert "TD3" not in table, "rows without a measurement are left out"


@pytest.mark.parametrize("env", [Servers, Warehouse, Room, Spot, Dispatcher])
def test_the_tasks_of_large_scales_are_gymnasium_environments(env):
    check_env(env(), skip_render_check=True)


def test_a_week_of_servers_and_a_day_of_the_warehouse_add_up():
    env = Servers()
    state, _ = env.reset(seed=0)
    after, reward, *_ = env.step(2)
    finished = min(int(state[0]), 8)
    assert reward == 20_000 * finished - 90_000 - 6_000 * after[0]
    shop = Warehouse()
    state, _ = shop.reset(seed=0)
    after, reward, *_ = shop.step(np.array([-1.0]))
    sold = state[0] - after[0]
    assert reward == after[1] - state[1] == 20 * sold - after[0]


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


# MuJoCo


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


def test_families_are_in_units_of_published_scores_above_random_play(tmp_path):
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


def test_the_grid_has_a_panel_for_each_pair(tmp_path):
    matplotlib_image = pytest.importorskip("matplotlib.image")
    results = Results(tmp_path)
    draw_grid(results)
    assert not list(tmp_path.iterdir())
    (tmp_path / "images").mkdir()
    results.append("learning", row(0, 100.0, [1.0, 2.0]))
    results.append("learning", row(1, 100.0, [1.5, 2.5]))
    draw_grid(results)
    picture = matplotlib_image.imread(next((tmp_path / "images").glob("mujoco*.png")))
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10


# Recorded data


def test_a_medium_policy_is_a_third_of_the_way_to_the_expert():
    steps = np.array([10, 20, 30, 40])
    # (0 - -300) / 3 = 100 above random play, which is at -300.
    assert benchmark_sets.medium_step(steps, np.array([-201.0, -200.0, -50.0, 0.0]), random=-300.0) == 20
    with pytest.raises(RunFailed, match=r"above random play, 0\.0"):
        benchmark_sets.medium_step(steps, np.array([5.0, 6.0, 7.0, -1.0]), random=0.0)


def in_this_process(module, *words):
    """What `run_module` runs, without the seconds that a process takes to start."""
    assert not {"minding": cli.run, "proofs.recordings": recordings.main}[module]([*words])


@pytest.mark.slow
@pytest.mark.shared_graphs
def test_sets_of_a_benchmark_are_made_of_one_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark_sets, "medium_step", lambda *_: 400)
    monkeypatch.setattr(benchmark_sets, "run_module", in_this_process)
    few = ["policy.eval.freq=200", "policy.eval.n_episode=1", "run.final_episodes=1", "policy.model.hidden=[16]"]
    settings = ["seed=3", "policy.learn.warmup=100", "policy.collect.random_steps=100", *few]
    cfg = compile_run(load_preset("pendulum_sac"), [*settings, "run.max_env_step=600", f"run.out_dir={tmp_path}"])
    run = RunDir.create(cfg)
    training.train(cfg, run, progress=False)
    given = ["pendulum_sac", str(run.path), str(tmp_path / "sets"), "--docs", str(tmp_path), "--steps", "2000"]
    assert benchmark_sets.main([*given, "--settings", *settings]) == 0
    rows = Results(tmp_path).lines(benchmark_sets.NAME)
    assert [(row["name"], row["steps"]) for row in rows] == [
        ("pendulum-random", 2000),
        ("pendulum-expert", 2000),
        ("pendulum-medium-replay", 400),
        ("pendulum-medium", 2000),
    ]
    assert len({row["fingerprint"] for row in rows}) == 4
    capsys.readouterr()
    # What is there is not made again.
    monkeypatch.setattr(benchmark_sets, "run_module", None)
    benchmark_sets.main([*given, "--settings", *settings])
    assert Results(tmp_path).lines(benchmark_sets.NAME)[4:] == rows


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
def test_a_constant_takes_the_place_of_gails_rewards(chain, value):
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


# Predators against the prey of another run


def test_the_last_agent_is_the_prey():
    ones, twos = (lambda obs, k=k: np.full((2, 4), k) for k in (1, 2))
    assert tag_crossplay.crossed(ones, twos)(None).tolist() == [[1, 1, 1, 2]] * 2
