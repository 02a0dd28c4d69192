"""A board game of your own in one file: rules, environment, opponents. python connect_three.py --simulations 100

To train on it: minding train ppo env.env_id=connect_three:ConnectThreeEnv env.env_kwargs.opponent=uct:20
"""

import argparse

import numpy as np

from minding.engine.search import match, opponents
from minding.envs.games.board import BoardEnv

LINES = [[(r + k * dr, c + k * dc) for k in range(3)] for r in range(4) for c in range(4)
         for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)) if r + 2 * dr < 4 and 0 <= c + 2 * dc < 4]  # fmt: skip


class ConnectThree:
    """Three in a row on 4 x 4 squares; a stone falls to the bottom of its column."""

    actions = 4
    longest = 16

    def initial(self, n):
        return (np.zeros((n, 4, 4), np.int8),)  # 1: of the player to move, -1: of the opponent

    def legal(self, state):
        return state[0][:, 0] == 0

    def play(self, state, action):
        board, game = state[0].copy(), np.arange(len(action))
        lowest = (board[game, :, action] == 0).sum(axis=1) - 1
        board[game, lowest, action] = 1
        won = np.any([np.all([board[:, r, c] == 1 for r, c in line], axis=0) for line in LINES], axis=0)
        return (-board,), won | (board[:, 0] != 0).all(axis=1), -won.astype(np.int8)

    def planes(self, state):
        return np.stack([state[0] == 1, state[0] == -1], axis=1).astype(np.float32)

    def symmetries(self, planes, policy):
        return [(planes, policy), (planes[..., ::-1], policy[:, ::-1])]


class ConnectThreeEnv(BoardEnv):
    """One side of it against `opponent`."""

    def __init__(self, opponent="random", first="random", render_mode=None):
        super().__init__(ConnectThree(), opponent, first, render_mode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--games", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    game, rng = ConnectThree(), np.random.default_rng(args.seed)
    player, start = opponents.uct(args.simulations), game.initial(args.games)
    for other in (opponents.random(), opponents.minimax()):
        first = match(game, player, other, start, rng).outcomes
        second = -match(game, other, player, start, rng).outcomes
        print(f"{player.name} against {other.name}: mean outcome {first.mean():.2f} first, {second.mean():.2f} second")
