"""Board games and evaluators for tests of search."""

import math

import numpy as np

from minding.envs.games.boards.connect_four import ConnectFour


class Twig:
    """A game of two plies that can be searched by hand.

    Positions: 1 is the root, action a leads from k to 2k + a. Positions 4 to 7 end the game; their outcome is that of
    the player who moved first.
    """

    actions = 2
    longest = 2
    outcome = np.array([0, 0, 0, 0, -1, 0, 0, 1])
    priors = np.array([[0.5, 0.5], [0.6, 0.4], [0.5, 0.5], [0.9, 0.1]])
    values = np.array([0.0, 0.0, 0.2, -0.4])

    def initial(self, n):
        return (np.ones(n, np.int64),)

    def legal(self, state):
        return np.ones((len(state[0]), 2), bool)

    def play(self, state, action):
        place = 2 * state[0] + action
        return (place,), place >= 4, self.outcome[place]

    def evaluate(self, state):
        return np.log(self.priors[state[0]]), self.values[state[0]]


def rows(state, index):
    return tuple(part[index] for part in state)


def connect_four(*games):
    """The positions after stones in these columns, such as ``"3340"``."""
    game, states = ConnectFour(), []
    for columns in games:
        state = game.initial(1)
        for column in columns:
            assert game.legal(state)[0, int(column)]
            state, over, _ = game.play(state, np.array([int(column)]))
            assert not over[0]
        states.append(state)
    return tuple(np.concatenate(parts) for parts in zip(*states))


class Uneven:
    """An evaluator of Connect Four without two equal numbers, which sees a position and its mirror image alike."""

    def __init__(self, seed=0, scale=1.0):
        rng = np.random.default_rng(seed)
        self.weights, self.scale = rng.normal(size=(84, 7)), scale
        self.value = rng.normal(size=84)
        self.asked = []

    def __call__(self, state):
        self.asked.append(state)
        planes = ConnectFour().planes(state)
        flat = [x.reshape(len(x), 84).astype(np.float64) for x in (planes, planes[..., ::-1])]
        sides = [np.sin(3.0 * x @ self.weights) for x in flat]
        values = [np.tanh(x @ self.value) for x in flat]
        return self.scale * (sides[0] + sides[1][:, ::-1]), (values[0] + values[1]) / 2.0


def uniform(state):
    return np.zeros((len(state[0]), 7)), np.zeros(len(state[0]))


class Node:
    """A node of the plain trees that the arrays are compared with: dicts and float64, one game at a time."""

    def __init__(self, game, state, evaluate):
        self.game, self.state = game, state
        logits, value = evaluate(state)
        self.legal = [int(a) for a in np.flatnonzero(game.legal(state)[0])]
        self.logits = {a: float(logits[0, a]) for a in self.legal}
        total = sum(math.exp(x) for x in self.logits.values())
        self.prior = {a: math.exp(x) / total for a, x in self.logits.items()}
        self.value = float(value[0])
        self.visits, self.total = dict.fromkeys(self.legal, 0), dict.fromkeys(self.legal, 0.0)
        self.children = {}

    def q(self, action):
        return self.total[action] / self.visits[action] if self.visits[action] else 0.0

    def simulate(self, action, choose, evaluate):
        """Takes an action, goes on with `choose`; returns the value for the player who moves here."""
        if action in self.children:
            child = self.children[action]
            value = -child.simulate(choose(child), choose, evaluate)
        else:
            state, over, outcome = self.game.play(self.state, np.array([action]))
            if over[0]:
                value = -float(outcome[0])
            else:
                self.children[action] = Node(self.game, state, evaluate)
                value = -self.children[action].value
        self.visits[action] += 1
        self.total[action] += value
        return value
