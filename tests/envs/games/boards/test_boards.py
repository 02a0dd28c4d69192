"""What holds for the rules of every board game, and random games against PettingZoo's."""

import importlib
import runpy
from pathlib import Path

import numpy as np
import pytest

from minding.envs.games.boards.connect_four import ConnectFour
from minding.envs.games.boards.tic_tac_toe import TicTacToe

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "connect_three.py"
# The game, the length of `symmetries`, and PettingZoo's module and number of each of our actions.
GAMES = {
    "tic_tac_toe": (TicTacToe(), 8, "tictactoe.tictactoe", [0, 3, 6, 1, 4, 7, 2, 5, 8]),
    "connect_four": (ConnectFour(), 2, "connect_four.connect_four", list(range(7))),
    "connect_three": (runpy.run_path(str(EXAMPLE))["ConnectThree"](), 2, "", []),
}


def random_plies(game, n, rng):
    """Plays n random games, and yields (positions, actions, next positions, over, outcome) of those that run."""
    state = game.initial(n)
    while len(state[0]):
        action = (rng.random((len(state[0]), game.actions)) * game.legal(state)).argmax(axis=1)
        following, over, outcome = game.play(state, action)
        yield state, action, following, over, outcome
        state = tuple(x[~over] for x in following)


@pytest.mark.parametrize("name", GAMES)
def test_play_writes_to_no_state_and_games_do_not_mix(name):
    game, rng = GAMES[name][0], np.random.default_rng(0)
    for ply, (state, action, following, over, outcome) in enumerate(random_plies(game, 20, rng)):
        copies = [x.copy() for x in state]
        one = [game.play(tuple(x[k : k + 1] for x in state), action[k : k + 1]) for k in range(len(action))]
        for part, whole in enumerate(following):
            assert np.array_equal(np.concatenate([s[part] for s, _, _ in one]), whole)
        assert np.array_equal(np.concatenate([o for _, o, _ in one]), over)
        assert np.array_equal(np.concatenate([w for _, _, w in one]), outcome)
        assert all(np.array_equal(a, b) for a, b in zip(state, copies))
        assert not (outcome[~over] != 0).any()
        assert ply < game.longest


@pytest.mark.parametrize("name", GAMES)
def test_symmetric_positions_play_alike(name):
    game, count, *_ = GAMES[name]
    rng = np.random.default_rng(1)
    policy = rng.random((30, game.actions)).astype(np.float32)
    numbers = np.arange(game.actions, dtype=np.float64)
    forms = {}
    for state, action, following, _over, _outcome in random_plies(game, 30, rng):
        n = len(action)
        planes, after = game.planes(state), game.planes(following)
        legal = game.legal(state).astype(np.float64)
        pairs = game.symmetries(planes, np.tile(numbers, (n, 1)))
        assert len(pairs) == count
        assert np.array_equal(pairs[0][0], planes)
        assert np.array_equal(game.symmetries(planes, policy[:n])[0][1], policy[:n])
        same = zip(pairs, game.symmetries(planes, legal), game.symmetries(after, legal))
        for (image, moved), (_, legal_there), (expected, _) in same:
            # Square by square, each action of the image means the one that it came from.
            assert np.array_equal(np.take_along_axis(legal, moved.astype(int), axis=1), legal_there)
            # The stone that the action adds lies where the image of the next position has it.
            swapped = expected[:, ::-1]
            added = swapped[:, 0] - image[:, 0]
            assert np.array_equal(swapped[:, 1], image[:, 1])
            assert (added.sum(axis=(1, 2)) == 1).all()
            there = (moved == action[:, None]).argmax(axis=1)
            place = added.reshape(n, -1).argmax(axis=1)
            column = place % added.shape[2]
            assert np.array_equal(there, place if game.actions == 9 else column)
            forms[image.tobytes()] = True
    assert len(forms) > count


@pytest.mark.parametrize("name", [name for name in GAMES if GAMES[name][2]])
@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_random_games_equal_those_of_pettingzoo_ply_by_ply(name):
    pytest.importorskip("pygame", reason="PettingZoo's board games draw with pygame: pip install pygame")
    game, _, module, theirs = GAMES[name]
    other = importlib.import_module(f"pettingzoo.classic.{module}").raw_env()
    rng = np.random.default_rng(2)
    for _ in range(60):
        other.reset()
        for state, action, following, over, outcome in random_plies(game, 1, rng):
            seen = other.observe(other.agent_selection)
            mask = seen["action_mask"].astype(bool)[theirs]
            planes = seen["observation"].transpose(2, 0, 1)
            if name == "tic_tac_toe":
                planes = planes.transpose(0, 2, 1)  # Theirs are numbered column by column.
            assert np.array_equal(planes, game.planes(state)[0])
            assert np.array_equal(mask, game.legal(state)[0])
            other.step(theirs[action[0]])
            assert other.terminations[other.agent_selection] == over[0]
            assert other.rewards[other.agent_selection] == outcome[0]
            assert len(following[0]) == 1
