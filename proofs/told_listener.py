"""How far agents of simple_speaker_listener are from a listener that is told the goal: ``python -m proofs.told_listener
RUN [--episodes 300]``.

That listener tries all sequences of four actions in the game's own mechanics, lets the agent drift for four more steps
and takes the first action of the best. Both play in the same worlds; returns are sums over both agents.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

import minding

DEPTH, DRIFT, STEPS = 4, 4, 25
MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], np.float64)
PLANS = np.array([*itertools.product(range(len(MOVES)), repeat=DEPTH)])


def planned(position: np.ndarray, velocity: np.ndarray, goal: np.ndarray, left: int) -> int:
    """The action that begins the plan with the smallest squared distances from the goal."""
    place, speed = (np.tile(each, (len(PLANS), 1)) for each in (position, velocity))
    cost = np.zeros(len(PLANS))
    for step in range(min(DEPTH + DRIFT, left)):
        place, speed = place + 0.1 * speed, 0.75 * speed
        if step < DEPTH:
            speed = speed + 0.5 * MOVES[PLANS[:, step]]
        cost += ((place - goal) ** 2).sum(1)
    return int(PLANS[cost.argmin(), 0])


def played(agent: minding.Agent, seed: int, told: bool) -> float:
    """The return of one episode, by the agents or by the listener that is told the goal."""
    env = agent.make_env()
    obs, _ = env.reset(seed=seed)
    agent.reset()
    world = env.unwrapped.parallel.unwrapped.world
    speaker, listener = world.agents
    total = 0.0
    for step in range(STEPS):
        if told:
            state = listener.state
            action = np.array([0, planned(state.p_pos, state.p_vel, speaker.goal_b.state.p_pos, STEPS - step)])
        else:
            action = agent.predict(obs)
        obs, reward, *_ = env.step(action)
        total += float(np.sum(reward))
    env.close()
    return total


def main() -> None:
    """Prints both means, and that of the differences with its standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--episodes", type=int, default=300)
    args = parser.parse_args()
    agent = minding.load(args.run)
    own, told = (np.array([played(agent, seed, each) for seed in range(args.episodes)]) for each in (False, True))
    error = (own - told).std() / len(own) ** 0.5
    print(f"{own.mean():.2f} told {told.mean():.2f} difference {(own - told).mean():.2f} +- {error:.2f}")


if __name__ == "__main__":
    main()
