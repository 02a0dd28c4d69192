"""Gomoku, Othello and Breakthrough against rules written square by square, and against OpenSpiel's."""

import numpy as np
import pytest

from minding.engine.search.rules import check_rules
from minding.envs.games.boards.breakthrough import Breakthrough
from minding.envs.games.boards.gomoku import Gomoku
from minding.envs.games.boards.histories import openspiel_game
from minding.envs.games.boards.othello import Othello

EVERY = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]


def ray(board, y, x, dy, dx):
    """The squares from (y, x), without it, to the edge."""
    squares = []
    while 0 <= (y := y + dy) < len(board) and 0 <= (x := x + dx) < len(board[0]):
        squares.append((y, x))
    return squares


def gomoku(board, action):
    y, x = divmod(action, len(board))
    if board[y][x]:
        return None
    board[y][x] = 1
    for dy, dx in EVERY:
        both = [ray(board, y, x, sign * dy, sign * dx) for sign in (1, -1)]
        counts = [next((k for k, (r, c) in enumerate(side) if board[r][c] != 1), len(side)) for side in both]
        if sum(counts) >= 4:
            return board, True, 1
    return board, all(map(all, board)), 0


def flips(board, y, x):
    found = []
    for step in EVERY:
        line = ray(board, y, x, *step)
        run = next((k for k, (r, c) in enumerate(line) if board[r][c] != -1), None)
        if run and board[line[run][0]][line[run][1]] == 1:
            found += line[:run]
    return [] if board[y][x] else found


def othello(board, action):
    size = len(board)
    puts = {y * size + x for y in range(size) for x in range(size) if flips(board, y, x)}
    if action not in (puts or {size * size}):
        return None
    if action < size * size:
        y, x = divmod(action, size)
        for r, c in [*flips(board, y, x), (y, x)]:
            board[r][c] = 1
    squares = [(y, x) for y in range(size) for x in range(size)]
    swapped = [[-s for s in row] for row in board]
    over = not any(flips(b, y, x) for b in (board, swapped) for y, x in squares)
    return board, over, np.sign(sum(map(sum, board)))


def breakthrough(board, action):
    square, direction = divmod(action, 3)
    y, x = divmod(square, len(board[0]))
    to = x + direction - 1
    if board[y][x] != 1 or y == 0 or not 0 <= to < len(board[0]):
        return None
    if board[y - 1][to] == 1 or (board[y - 1][to] and direction == 1):
        return None
    board[y][x], board[y - 1][to] = 0, 1
    return board, y == 1 or not any(s == -1 for row in board for s in row), 1


def opposed(board):
    return [[-s for s in row] for row in board]


CASES = {
    "gomoku": (Gomoku(6), gomoku, opposed),
    "othello": (Othello(4), othello, opposed),
    "breakthrough": (Breakthrough(6, 4), breakthrough, lambda board: opposed(board)[::-1]),
}


@pytest.mark.parametrize("name", CASES)
def test_random_games_follow_the_rules_square_by_square(name):
    game, rules, turn = CASES[name]
    check_rules(game)
    rng, ends, passes = np.random.default_rng(0), set(), 0
    for _ in range(12):
        state, over, ply = game.initial(1), [False], 0
        while not over[0]:
            planes = game.planes(state)[0]
            board = (planes[0] - planes[1]).astype(int).tolist()
            legal = [a for a in range(game.actions) if rules([row[:] for row in board], a)]
            assert np.flatnonzero(game.legal(state)[0]).tolist() == legal
            action = int(rng.choice(legal))
            after, ended, outcome = rules(board, action)
            state, over, value = game.play(state, np.array([action]))
            assert np.array_equal(np.array(turn(after)), game.planes(state)[0, 0] - game.planes(state)[0, 1])
            assert (over[0], value[0]) == (ended, -outcome if ended else 0)
            passes += legal == [16]
            ply += 1
        ends.add(value[0])
        assert ply <= game.longest
    assert len(ends) > 1 or name == "breakthrough"
    assert passes or name != "othello"


@pytest.mark.parametrize(("name", "parameters"), [("othello", {}), ("gomoku", {"size": 7})])
def test_othello_and_gomoku_equal_openspiel_ply_by_ply(name, parameters):
    pytest.importorskip("pyspiel", reason="pip install open_spiel")
    ours, theirs = (
        {"othello": Othello, "gomoku": Gomoku}[name](*parameters.values()),
        openspiel_game(name, **parameters),
    )
    rng = np.random.default_rng(3)
    for _ in range(10):
        states, over = [game.initial(1) for game in (ours, theirs)], False
        while not over:
            legal = ours.legal(states[0])[0]
            assert np.array_equal(theirs.legal(states[1])[0], legal)
            action = np.array([rng.choice(np.flatnonzero(legal))])
            (states[0], *ends), (states[1], *same) = ours.play(states[0], action), theirs.play(states[1], action)
            assert np.array_equal(ends, same)
            over = ends[0][0]
