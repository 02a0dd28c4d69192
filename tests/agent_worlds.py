"""Small environments of several agents with known answers; importable as ``agent_worlds:Squad``."""

import numpy as np
from gymnasium import spaces


class Squad:
    """A parallel environment of PettingZoo's kind: three agents on the clock of a `Counter`.

    Agent m observes (start, steps, m, its last action) and earns ``10 * m + steps``; ``info['load']`` is 100 m + steps.
    An episode of even length terminates for all, one of odd length is truncated.

    Args:
      leave: step in which 'b' terminates, None: with the others.
      late: step after which 'c' appears, 0: from the start.
      mask: where the masks are: 'info', 'obs', or None; of agent m, action (m + steps) % 2 is legal.
      odd: what is wrong: 'shape', 'missing', 'nan', 'reserved', 'raise', 'keeps' (who ended stays listed),
        'nobody' (after a reset), and from step 2 on: 'no reward', 'no termination' or 'no truncation' of 'b', a
        stranger 'z' with an observation ('seen'), with a reward ('paid') or among the agents ('listed').
      length: of every episode, None: 2 to 6.
    """

    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def __init__(self, leave=None, late=0, mask=None, odd=None, length=None):
        self.leave, self.late, self.mask, self.odd, self.fixed = leave, late, mask, odd, length
        self.agents = []

    def observation_space(self, agent):
        space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        if self.odd == "reserved":
            return spaces.Dict(alive=space)
        return space if self.mask != "obs" else spaces.Dict(seen=space, action_mask=spaces.MultiBinary(2))

    def action_space(self, agent):
        return spaces.Discrete(2, start=5)

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.length = self.fixed or int(self.rng.integers(2, 7))
        self.start, self.steps = float(self.rng.integers(1_000_000)), 0
        self.last = dict.fromkeys(self.possible_agents, 0)
        self.agents = [] if self.odd == "nobody" else ["a", "b"] if self.late else ["a", "b", "c"]
        return self.tell(self.agents)

    def step(self, actions):
        assert list(actions) == self.agents
        assert all(type(action) is int and action in (5, 6) for action in actions.values())
        if self.odd == "raise" and self.steps == 1:
            raise RuntimeError("radio lost")
        self.last.update(actions)
        self.steps += 1
        over, acting = self.steps == self.length, self.agents
        ends = {agent: over and self.length % 2 == 0 for agent in acting}
        cuts = {agent: over and self.length % 2 == 1 for agent in acting}
        if self.steps == self.leave and "b" in acting:
            ends["b"], cuts["b"] = True, False
        rewards = {agent: 10.0 * self.place(agent) + self.steps for agent in acting}
        if self.odd == "nan" and self.steps == 2:
            rewards["b"] = np.nan
        told = acting if self.odd != "missing" or self.steps < 2 else acting[:-1]
        self.agents = [agent for agent in acting if self.odd == "keeps" or not (ends[agent] or cuts[agent])]
        if self.late and self.steps == self.late and not over:
            self.agents = [*self.agents, "c"]
            told = [*told, "c"]
        obs, infos = self.tell(told)
        if self.steps > 1:
            self.spoil(obs, rewards, ends, cuts)
        return obs, rewards, ends, cuts, infos

    def spoil(self, obs, rewards, ends, cuts):
        missing = {"no reward": rewards, "no termination": ends, "no truncation": cuts}
        missing.get(self.odd, {}).pop("b", None)
        if self.odd == "seen":
            obs["z"] = obs["a"]
        elif self.odd == "paid":
            rewards["z"] = 0.0
        elif self.odd == "listed":
            self.agents = [*self.agents, "z"]

    def state(self):
        return np.array([self.start, self.steps, len(self.agents)])

    def place(self, agent):
        return self.possible_agents.index(agent)

    def tell(self, agents):
        obs, infos = {}, {}
        for agent in agents:
            m = self.place(agent)
            obs[agent] = np.array([self.start, self.steps, m, self.last[agent]], np.float32)
            if self.odd == "shape" and agent == "b" and self.steps == 2:
                obs[agent] = obs[agent][:2]
            infos[agent] = {"load": 100.0 * m + self.steps}
            legal = np.eye(2, dtype=np.int8)[(m + self.steps) % 2]
            if self.mask == "obs":
                obs[agent] = {"seen": obs[agent], "action_mask": legal}
            elif self.mask == "info":
                infos[agent]["action_mask"] = legal
        return obs, infos

    def close(self):
        pass


class Nobody(Squad):
    """Names no agents."""

    possible_agents = ()


class Parts(Squad):
    """'a' earns 1 for the first action, the others for the second; episodes of 8 steps, 'b' leaves after 5."""

    max_cycles = 8

    def __init__(self):
        super().__init__(leave=5, length=self.max_cycles)

    def step(self, actions):
        obs, _, ends, cuts, infos = super().step(actions)
        rewards = {agent: float(action - 5 == (agent != "a")) for agent, action in actions.items()}
        return obs, rewards, ends, cuts, infos

    def state(self):
        return super().state() * np.float32([0, 0.1, 1])

    def tell(self, agents):
        obs, infos = super().tell(agents)
        return {agent: seen * np.float32([0, 0.1, 1, 0]) for agent, seen in obs.items()}, infos


class Mixed(Squad):
    """'a', 'b' and 'c' observe 2, 4 and 3 of the numbers that a squad observes, and act in spaces of their own.

    Each earns its own last action, in its own units.

    Args:
      actions: 'discrete': 2, 4 and 3 actions that begin with 0, 7 and 0; 'pairs': MultiDiscrete; 'box': 1, 3 and 2
        numbers in [0, 1], [0, 1] and [-2, 4]; 'kinds': what does not go together.
      mask: the agent whose observation alone has one: of each choice only the last entry is legal.
    """

    SIZES = {"a": 2, "b": 4, "c": 3}  # noqa: RUF012

    def __init__(self, actions="discrete", mask=None, **kwargs):
        super().__init__(**kwargs)
        self.actions, self.masked = actions, mask

    def observation_space(self, agent):
        size = self.SIZES[agent]
        space = spaces.Box(-1.0 - self.place(agent), np.inf, (size,), np.float32)
        if self.masked is None:
            return space
        mask = {"action_mask": spaces.MultiBinary(len(self.legal()))} if agent == self.masked else {}
        return spaces.Dict({"observation": space, **mask})

    def legal(self):
        space = self.action_space(self.masked)
        counts = space.nvec if self.actions == "pairs" else [space.n]
        return np.concatenate([np.eye(count, dtype=np.int8)[-1] for count in counts])

    def action_space(self, agent):
        number, m = self.SIZES[agent], self.place(agent)
        low, high = (-2.0, 4.0) if agent == "c" else (0.0, 1.0)
        return {
            "discrete": spaces.Discrete(number, start=7 * (agent == "b")),
            "pairs": spaces.MultiDiscrete([number, 3 - m]),
            "box": spaces.Box(low, high, (number - 1,), np.float32),
            "kinds": spaces.Discrete(2) if m else spaces.Box(0.0, 1.0, (2,), np.float32),
        }[self.actions]

    def step(self, actions):
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
        self.taken = {agent: np.asarray(action).tolist() for agent, action in actions.items()}
        acting = self.agents
        numbers = dict.fromkeys(acting, 5)
        obs, _, ends, cuts, infos = super().step(numbers)
        rewards = {agent: float(np.sum(actions[agent])) for agent in acting}
        return obs, rewards, ends, cuts, {agent: {**info, "joint": float(self.steps)} for agent, info in infos.items()}

    def state(self):
        raise NotImplementedError

    def tell(self, agents):
        obs, infos = super().tell(agents)
        for agent in obs:
            seen = obs[agent][: self.SIZES[agent]]
            mask = {"action_mask": self.legal()} if agent == self.masked else {}
            obs[agent] = seen if self.masked is None else {"observation": seen, **mask}
        return obs, infos


class Shared(Mixed):
    """One reward for all, and an info that is about all of them."""

    metadata = {"one_reward": True, "shared_info": ["joint"]}  # noqa: RUF012


class Vanishing(Squad):
    """A squad whose world is gone once an episode is over, as multiwalker's: it tells no state, mask or picture then.

    Args:
      garbage: `state()` returns None then, and raises nothing.
    """

    def __init__(self, garbage=False, **kwargs):
        super().__init__(mask="info", **kwargs)
        self.garbage, self.world = garbage, None

    def reset(self, seed=None, options=None):
        answer = super().reset(seed, options)
        self.world = super().state()
        return answer

    def step(self, actions):
        *answer, infos = super().step(actions)
        if not self.agents:
            self.world, infos = None, {agent: {} for agent in infos}
        else:
            self.world = super().state()
        return *answer, infos

    def state(self):
        return self.world if self.garbage else self.world.copy()
