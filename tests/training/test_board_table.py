"""Playing against an agent: the board, moves by number, undo, hint, and what a pipe may hold; the command itself."""

import io

import numpy as np
import pytest
from board_toys import connect_four

from minding import training
from minding.cli import run
from minding.cli.summary import print_summary
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.config.compiler import save_config
from minding.engine.errors import ShapeError
from minding.engine.run.run_dir import RunDir
from minding.engine.search.opponents import Solution
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe
from minding.training.board_table import BoardAgent, Table, board_text, checkpoint

pytestmark = pytest.mark.shared_graphs

GAME = TicTacToe()
SOLUTION = Solution(GAME)
CFG = Config(
    seed=0,
    policy={"collect": {"search": "puct", "puct": {"c": 1.25, "dirichlet_alpha": 1.0, "dirichlet_fraction": 0.25}}},
)


def perfect(state):
    return SOLUTION.optimal(state) * 5.0, SOLUTION.value(state)


def play(lines, game=GAME, evaluate=perfect, simulations=0, **options):
    """The outcome for the agent, and all lines that were written, prompts among them."""
    given, written = iter(lines), []

    def read(prompt):
        written.append(prompt)
        return f"{line}\n" if (line := next(given, None)) is not None else ""

    settings = {"second": False, "opponent": None, "show_search": False, "seed": 0, **options}
    table = Table(game, BoardAgent(CFG, game, evaluate, simulations), read=read, write=written.append, **settings)
    return table.play(), written


def test_a_board_shows_marks_and_the_numbers_of_moves():
    state = GAME.initial(1)
    for action in (4, 0):
        state, _, _ = GAME.play(state, np.array([action]))
    assert board_text(GAME, state, 0) == [" O 1 2", " 3 X 5", " 6 7 8"]
    state, _, _ = GAME.play(state, np.array([8]))
    assert board_text(GAME, state, 1) == [" O 1 2", " 3 X 5", " 6 7 X"]
    # The end of a game offers no move.
    assert board_text(GAME, state, 1, over=True) == [" O . .", " . X .", " . . X"]
    four = board_text(ConnectFour(), connect_four("330"), 1)
    assert four[-3:] == [" . . . O . . .", " X . . X . . .", " 0 1 2 3 4 5 6"]


class OnePlane(TicTacToe):
    def planes(self, state):
        own, other = np.split(super().planes(state), 2, axis=1)
        return (own - other + 1) / np.float32(2)


def first_legal(game):
    return lambda state: (np.zeros((len(state[0]), game.actions)), np.zeros(len(state[0])))


def test_a_game_without_places_is_played_by_its_legal_actions():
    outcome, lines = play(["4", "2", "6"], OnePlane(), first_legal(GAME))
    assert outcome == -1.0
    assert lines[1].startswith("no board is drawn: OnePlane has no method stones(state)")
    assert [line for line in lines if line.startswith(" legal")] == [
        " legal: 0-8", " legal: 0-3, 5-8", " legal: 1-3, 5-8", " legal: 1, 3, 5-8", " legal: 3, 5-8"
    ]  # fmt: skip


def test_a_whole_game_is_played_by_numbers():
    outcome, lines = play(["0", "1", "2", "3", "5", "6", "7", "8"])
    assert outcome >= 0.0
    assert "your move (X): " in lines
    assert any(line.startswith("agent (O): 4, expects") for line in lines)
    assert lines[-1].endswith("plies")


def test_undo_takes_back_a_move_and_hint_tells_the_best():
    outcome, lines = play(["undo", "4", "undo", "4", "hint", "quit"])
    assert outcome is None
    assert "you have no move to take back" in lines
    assert lines.count(" 0 1 2") == 4
    assert "hint: 1, expects +0.00 for you" in lines
    assert lines[-1] == "left after 2 plies"


def test_invalid_moves_are_asked_for_again():
    _, lines = play(["4", "4", "12", "-1", "x", ""])
    answers = [line for line in lines if "expected" in line]
    assert answers == [
        "4 is not a legal move here: expected one of 1-3, 5-8",
        "12 is not a legal move here: expected one of 1-3, 5-8",
        "'-1' is not a move: expected one of the numbers 1-3, 5-8, or undo, hint, quit",
        "'x' is not a move: expected one of the numbers 1-3, 5-8, or undo, hint, quit",
    ]
    assert lines[-1] == "left after 2 plies"


def run_folder(path, *overrides, user="tictactoe_alphazero"):
    small = [f"run.out_dir={path.parent}", f"exp_name={path.name}", "run.loggers=[]", "policy.model.hidden=[8]"]
    cfg = compile_run(user, [*small, *overrides])
    return cfg, RunDir.create(cfg)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Configuration, folder and summary of a run that ended before it learned anything."""
    few = (
        "run.max_step=1",
        "env.collector_env_num=4",
        "policy.collect.n_sample=4",
        "run.final_episodes=2",
        "policy.learn.warmup=4",
    )
    cfg, run_dir = run_folder(tmp_path_factory.mktemp("play") / "ttt", *few, "policy.collect.simulations=2")
    summary = training.train(cfg, run_dir, progress=False)
    return cfg, run_dir, summary


@pytest.fixture(scope="module")
def saved(ended):
    return ended[1]


def test_the_summary_of_a_run_says_how_to_play_against_it(ended, capsys):
    print_summary(*ended, draw=True)
    lines = capsys.readouterr().out.splitlines()
    assert f"  play             minding play {ended[1].path}" in lines
    assert f"  evaluate         minding eval {ended[1].path}" in lines
    # Two games against each opponent of the preset.
    against = {line.split()[1] for line in lines if line.startswith("  against ") and line.endswith(" of 2 games")}
    assert against == {"random", "minimax"}
    assert any(line.startswith("  mean score ") and line.endswith(" over 4 games") for line in lines)
    assert any(line.startswith("  plies ") for line in lines)
    why = f"none: no evaluation came before the final one (policy.eval.freq={ended[0].policy.eval.freq})"
    assert any(line.startswith("  curve ") and line.endswith(why) for line in lines)
    assert not any(line.startswith("  film") for line in lines)


def command(capsys, monkeypatch, text, *args):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    code = run(["play", *map(str, args)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_plays_through_a_pipe(saved, capsys, monkeypatch):
    code, out, err = command(capsys, monkeypatch, "4\nundo\n", saved.path, "--simulations", "4", "--show-search")
    assert (code, err) == (0, "")
    assert "your move (X): 4\n\n 0 1 2\n 3 X 5\n 6 7 8\n" in out
    assert out.endswith("left after 0 plies\n")


def test_the_agent_of_another_run_is_an_opponent(saved, capsys, monkeypatch):
    code, out, _ = command(capsys, monkeypatch, "", saved.path, "--opponent", f"checkpoint:{saved.path}")
    assert code == 0
    assert f"checkpoint:{saved.path} (X): " in out
    assert out.splitlines()[-1].endswith("plies")
    assert checkpoint(saved, GAME).name == "checkpoint:ttt"
    with pytest.raises(ShapeError, match="the planes of ConnectFour are"):
        checkpoint(saved, ConnectFour())


def test_what_cannot_play_is_one_line(saved, capsys, monkeypatch, tmp_path):
    cfg, other = run_folder(tmp_path / "four", user="connect_four_alphazero")
    save_config(cfg, other.config)
    code, _, err = command(capsys, monkeypatch, "", saved.path, "--opponent", f"checkpoint:{other.path}")
    assert (code, err.count("\n")) == (2, 1)
    assert "the policy observes (2, 6, 7), and the planes of TicTacToe are (2, 3, 3): it belongs to another game" in err
    cfg, ppo = run_folder(tmp_path / "ppo", user="cartpole_ppo")
    save_config(cfg, ppo.config)
    code, _, err = command(capsys, monkeypatch, "", ppo.path)
    assert (code, err.count("\n")) == (2, 1)
    assert "policy.type='ppo' does not search; expected a run of self-play" in err
