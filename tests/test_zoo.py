"""The zoo: its agents play, its page names them, and ``zoo/NAME`` finds them from any folder."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pages import ROOT, table
from PIL import Image, ImageSequence

import minding
from minding.cli import cli
from minding.engine.config.compiler import load_config
from minding.engine.run import zoo
from minding.engine.run.run_dir import RunDir
from proofs import zoo as making

# Random play is far below, and what was measured far above.
LEAST = {
    "Acrobot-v1": -400.0,
    "CartPole-v1": 100.0,
    "Pendulum-v1": -800.0,
    "minding/Battle-v0": 9.0,
    "minding/MaskedGrid-v0": 20.0,
    "minding/TicTacToe-v0": 0.4,
}
AGENTS = json.loads((ROOT / "docs" / "results" / "zoo.json").read_text())


def test_folders_figures_and_presets_of_the_zoo_agree():
    assert zoo.agents() == sorted(AGENTS) == sorted(making.ZOO)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_an_agent_of_the_zoo_plays_from_any_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = minding.load(f"zoo/{name}")
    said = AGENTS[name]
    assert (agent.cfg.env.env_id, agent.cfg.policy.type, agent.cfg.seed) == (
        said["env_id"], said["algorithm"], said["seed"]
    )  # fmt: skip
    assert agent.evaluate(2).mean > LEAST[said["env_id"]]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_an_agent_of_the_zoo_is_small_and_has_the_pages_figures(name):
    folder, said = ROOT / "zoo" / name, AGENTS[name]
    assert (folder / "policy.safetensors").stat().st_size <= making.MOST_BYTES
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2 * making.MOST_BYTES
    assert load_config(folder / "config.yaml").run.out_dir == "runs"
    card = (folder / "README.md").read_text()
    told = (
        f"Mean score {said['mean']:.3f} over {said['episodes']} games"
        if "TicTacToe" in said["env_id"]
        else f"Mean return {said['mean']:.1f} over {said['episodes']} episodes"
    )
    assert told in card
    for page, title in (("zoo.md", "agent"), ("zh/zoo.md", "智能体")):
        (row,) = [row for row in table(ROOT / "docs" / page, title) if row[0].startswith(f"`zoo/{name}`")]
        assert f"{said['mean']:.1f}"[:4] in row[2]
        assert (f"zoo/{name}/episode.gif" in row[1]) == (folder / "episode.gif").is_file() == said["film"]


def test_commands_take_an_agent_of_the_zoo_and_write_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (ROOT / "zoo").rglob("*")}
    out = CliRunner().invoke(cli, ["record", "zoo/acrobot_ppo"])
    assert (out.exit_code, out.output.splitlines()[-1]) == (0, "video: acrobot_ppo/episode.gif")
    assert Path("acrobot_ppo", "episode.gif").is_file()
    assert RunDir.open(ROOT / "zoo" / "acrobot_ppo").products == tmp_path / "acrobot_ppo"
    assert {path: path.stat().st_mtime_ns for path in (ROOT / "zoo").rglob("*")} == before


# How it is made


def test_the_best_run_has_the_highest_return_then_least_spread():
    runs = [
        {"eval_mean": mean, "eval_std": std, "seed": seed}
        for seed, (mean, std) in enumerate([(490.0, 1.0), (500.0, 2.0), (500.0, 0.0), (500.0, 0.0)])
    ]
    assert making.best(runs)["seed"] == 2


def pictures(film):
    """The pictures of a film, float32 ``(H, W, 3)`` each, and their durations in milliseconds."""
    with Image.open(film) as source:
        found = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(source)]
    return [np.asarray(picture, np.float32) for picture, _ in found], [duration for _, duration in found]


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_the_film_of_an_agent_is_the_one_that_is_filmed_now(name, tmp_path):
    with minding.load(f"zoo/{name}") as agent:
        agent.cfg.policy.eval.max_episode_steps = 60  # The beginning of the episode suffices.
        making.film(agent, tmp_path / "episode.gif")
    fresh, durations = pictures(tmp_path / "episode.gif")
    shown, their_durations = pictures(ROOT / "zoo" / name / "episode.gif")
    whole = len(fresh) == len(shown)
    count = len(fresh) - (not whole)
    assert their_durations[:count] == durations[:count]
    # The last bits of a policy and of a renderer depend on the machine, and they may move an edge by a pixel.
    for one, other in zip(fresh[:count], shown):
        assert (np.abs(one - other).max(axis=2) > 50).mean() < 0.01
