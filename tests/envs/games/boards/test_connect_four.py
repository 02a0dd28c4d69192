"""The rules of Connect Four."""

import numpy as np

from minding.envs.games.boards.connect_four import ConnectFour

GAME = ConnectFour()


def test_the_sequences_of_one_to_seven_plies_are_counted():
    state, counts = GAME.initial(1), []
    for _ in range(7):
        rows, actions = np.nonzero(GAME.legal(state))
        state, over, _ = GAME.play(tuple(x[rows] for x in state), actions)
        counts.append(len(over))
        state = tuple(x[~over] for x in state)
    assert counts == [7, 49, 343, 2401, 16807, 117649, 823536]
