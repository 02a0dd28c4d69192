"""Board games of other packages, whose states are histories of actions."""

import numpy as np
import pytest

from minding.configs import compile_run
from minding.engine import Config, ConfigError, MissingExtraError
from minding.engine.config.named import is_named
from minding.engine.search.rules import check_rules
from minding.envs import describe_env, make_board_game
from minding.envs.games.boards import histories
from minding.envs.games.boards.histories import HistoryGame
from minding.envs.games.boards.tic_tac_toe import TicTacToe


class Squares:
    """Tic-Tac-Toe as another package would have it; `again` lets a player who marks the center move again."""

    name, actions = "squares", 9

    def __init__(self, again=False):
        self.again = again

    def initial(self):
        return ((0,) * 9, 0)

    def after(self, position, action):
        board, player = position
        board = (*board[:action], 1 + player, *board[action + 1 :])
        return board, player if self.again and action == 4 else 1 - player

    def _lines(self, board):
        marks = np.array(board).reshape(3, 3)
        return [*marks, *marks.T, marks.diagonal(), marks[::-1].diagonal()]

    def player(self, position):
        over = any(line[0] and len(set(line)) == 1 for line in self._lines(position[0])) or all(position[0])
        return None if over else position[1]

    def legal(self, position):
        return (np.array(position[0]) == 0) & (self.player(position) is not None)

    def outcome(self, position, player):
        won = [line[0] for line in self._lines(position[0]) if line[0] and len(set(line)) == 1]
        return 0.0 if not won else 1.0 if won[0] == 1 + player else -1.0

    def planes(self, position, player):
        marks = np.array(position[0]).reshape(3, 3)
        return np.stack([marks == 1 + player, marks == 2 - player]).astype(np.float32)


def test_a_game_of_histories_is_the_game(monkeypatch):
    monkeypatch.setattr(histories, "_HELD", 3)
    ours, theirs, rng = TicTacToe(), HistoryGame(Squares(), 9), np.random.default_rng(0)
    check_rules(theirs)
    states = [game.initial(30) for game in (ours, theirs)]
    while len(states[0][0]):
        legal = ours.legal(states[0])
        assert np.array_equal(theirs.legal(states[1]), legal)
        assert np.array_equal(ours.planes(states[0]), theirs.planes(states[1]))
        action = (rng.random(legal.shape) * legal).argmax(axis=1)
        (a, *ends), (b, *same) = ours.play(states[0], action), theirs.play(states[1], action)
        assert np.array_equal(ends, same)
        states = [tuple(part[~ends[0]] for part in state) for state in (a, b)]


def test_ids_of_openspiel_name_no_code_and_say_what_is_missing():
    assert not is_named("openspiel:hex")
    try:
        import pyspiel  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match=r"env_id='openspiel:hex' needs the package 'pyspiel'.*openspiel"):
            describe_env({"env_id": "openspiel:hex"})


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("hexx", {}, "OpenSpiel has no such game; did you mean 'hex'"),
        ("hex", {"board_siz": 5}, "board_siz"),
        ("kuhn_poker", {}, "this game has hidden information and has chance"),
        ("chess", {}, "longest=17695.* set env.env_kwargs.longest"),
    ],
)
def test_games_of_openspiel_that_do_not_fit_are_refused(name, options, words):
    pytest.importorskip("pyspiel", reason="pip install open_spiel")
    with pytest.raises(ConfigError, match=words):
        describe_env({"env_id": f"openspiel:{name}", "env_kwargs": options})


@pytest.mark.parametrize("env_id", ["classic/connect_four_v3", "openspiel:breakthrough", "minding/Othello-v0"])
@pytest.mark.filterwarnings("ignore:The old environment creation API")
def test_alphazero_takes_the_rules_of_a_game_by_its_id(env_id):
    pytest.importorskip("pyspiel" if env_id.startswith("openspiel") else "pygame")
    sized = {"rows": 6, "columns": 4} if "breakthrough" in env_id else {}
    user = Config(env={"env_id": env_id, "env_kwargs": sized}, policy={"type": "alphazero"})
    cfg = compile_run(user, [])
    game = make_board_game(cfg)
    assert cfg.env.spec.action.n == game.actions
    assert game.legal(game.initial(3)).any(axis=1).all()
