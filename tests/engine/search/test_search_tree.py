"""What trees ask of the rules and of the evaluator, and what they refuse."""

import numpy as np
import pytest
from board_toys import Twig, Uneven, connect_four, uniform
from fakes import refuses

from minding.engine.errors import ConfigError, GameError, NonFiniteError, ShapeError
from minding.engine.search import GumbelOptions, PuctOptions, gumbel, puct
from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe

GAME = ConnectFour()
RNG = np.random.default_rng(0)
SEARCHES = pytest.mark.parametrize(
    ("search", "options"), [(puct, PuctOptions(40)), (gumbel, GumbelOptions(40))], ids=["puct", "gumbel"]
)


@SEARCHES
def test_evaluations_come_in_batches_of_unfinished_games(search, options):
    # In the first game most plies end it soon; the second is far from its end.
    state, evaluate = connect_four("334455", "3"), Uneven(4)
    before = [part.copy() for part in state]
    found = search(GAME, state, evaluate, options, RNG)
    assert len(evaluate.asked) <= 41
    for own, stones in evaluate.asked:
        assert len(own) == len(stones) == 2
        for player in (own, own ^ stones):
            boards = [[f"{int(p):049b}"[48 - 7 * c - r] == "1" for c in range(7) for r in range(7)] for p in player]
            assert not any(has_line(np.reshape(board, (7, 7))) for board in boards)
    assert any((own[:1] == state[0][:1]).all() for own, _ in evaluate.asked[1:]), "no padding with the root"
    assert all(np.array_equal(a, b) for a, b in zip(state, before))
    assert found.tree.child.max() < 41 * 2


def has_line(board):
    """Four in a row of a board (column, row), square by square."""
    for c in range(7):
        for r in range(7):
            for dc, dr in ((0, 1), (1, 0), (1, 1), (1, -1)):
                line = [(c + k * dc, r + k * dr) for k in range(4)]
                if all(0 <= x < 7 and 0 <= y < 7 and board[x, y] for x, y in line):
                    return True
    return False


@SEARCHES
def test_a_game_that_ends_at_once_is_judged_at_its_root(search, options):
    game, calls = Twig(), []

    def evaluate(state):
        calls.append(state[0].tolist())
        return np.zeros((len(state[0]), 2)), np.zeros(len(state[0]))

    found = search(game, (np.array([2, 3]),), evaluate, options, RNG)
    # After position 2 the other player wins by action 0; after 3 it draws by action 0, and would lose by action 1.
    assert calls == [[2, 3]]
    assert found.visits.sum(axis=1).tolist() == [40, 40]
    assert found.best.tolist() == [0, 0]
    assert found.value[0] > 0.5


@SEARCHES
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_none_is_an_error_that_says_where(search, options, bad):
    def spoilt(at, part):
        calls = []

        def evaluate(state):
            logits, values = uniform(state)
            if len(calls) == at:
                if part == "logits":
                    logits[1, 4] = bad
                else:
                    values[1] = bad
            calls.append(0)
            return logits, values

        return evaluate

    state = connect_four("", "3")
    with pytest.raises(NonFiniteError, match=rf"the logit of game 1, action 4 is {bad}, in simulation 3 of 40"):
        search(GAME, state, spoilt(3, "logits"), options, RNG)
    with pytest.raises(NonFiniteError, match=rf"the value of game 1 is {bad}, in simulation 0 of 40 \(0 judges"):
        search(GAME, state, spoilt(0, "values"), options, RNG)


def test_logits_of_illegal_actions_may_be_anything():
    def evaluate(state):
        logits, values = uniform(state)
        logits[~GAME.legal(state)] = np.array([np.nan, -np.inf, np.inf])[len(calls) % 3]
        calls.append(0)
        return logits, values

    calls = []
    state = connect_four("222222")
    expected = puct(GAME, state, uniform, PuctOptions(40), RNG)
    assert puct(GAME, state, evaluate, PuctOptions(40), RNG).visits.tolist() == expected.visits.tolist()


@SEARCHES
def test_a_running_game_without_a_legal_action_is_an_error(search, options):
    class Stuck(Twig):
        def legal(self, state):
            return np.repeat(state[0][:, None] != 3, 2, axis=1)

    game = Stuck()
    refuses(
        GameError,
        ("game 1 is not over", lambda: search(game, (np.array([1, 3]),), game.evaluate, options, RNG)),
        ("in simulation 2", lambda: search(game, game.initial(1), game.evaluate, options, RNG)),
    )


@SEARCHES
def test_wrong_positions_options_and_answers_are_refused(search, options):
    other = PuctOptions(4) if isinstance(options, GumbelOptions) else GumbelOptions(4)

    def look(answer, state=None, options=options):
        search(GAME, GAME.initial(2) if state is None else state, lambda _: answer, options, RNG)

    logits, values = np.zeros((2, 7)), np.zeros(2)
    refuses(
        ShapeError,
        ("logits of shape (2, 7)", lambda: look((logits, np.zeros((2, 1))))),
        ("at least one game", lambda: look((logits[:0], values[:0]), GAME.initial(0))),
        ("positions of ConnectFour", lambda: look((logits, values), TicTacToe().initial(2))),
    )
    refuses(
        GameError,
        ("NoneType", lambda: look(None)),
        ("dtype <U1", lambda: look((np.full((2, 7), "a"), values))),
        ("the value of game 0 is 50.0", lambda: look((logits, np.full(2, 50.0)))),
    )
    refuses(ConfigError, (f"got {type(other).__name__}", lambda: look((logits, values), None, other)))
