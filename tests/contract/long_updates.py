"""Makes over a thousand updates, most of which are skipped, in one go and with a resume among them; in a fresh process.

``python long_updates.py SETTING ALGORITHM`` prints the algorithm, how many denormal numbers its parameters and
optimizers held when the run was cut, and the names of those that differ at the end.
"""

import sys

import numpy as np
from fakes import Batches, rows_of, tiny_config

from minding.engine.process import runtime
from minding.policies import get_policy_class

# Without gradients a moment of Adam's becomes denormal after 830 updates, and so does the power of its first beta.
CUT, END, ROWS = 900, 1_040, 32
AGED = 800
"""So many updates are skipped: what they do to the numbers in question is known."""
SETTINGS = {"two dispatch threads": {}, "two kernel threads": {"threads": 2}}


class Learner:
    def __init__(self, algorithm):
        self.policy = get_policy_class(algorithm)(tiny_config(algorithm), ("learn",))
        batches, rng = Batches(self.policy, ROWS), np.random.default_rng(0)
        # Learners of trajectories take rows as (T, N).
        block = (4, 2) if "cut" in batches.layout.fields else (8,)
        self.batch = batches(rows_of(batches.layout, ROWS, rng), rng.integers(0, ROWS, (1, *block)))

    def age(self):
        """Makes first moments and their power those of a policy that made `AGED` updates without gradients."""
        state = self.policy.state_dict()
        for name, value in state["params"].items():
            if ".m." in name or name.endswith("beta1_power"):
                value *= np.float32(0.9**AGED)
                value[np.abs(value) < np.finfo(np.float32).tiny] = 0.0
        self.policy.load_state_dict(state)

    def learn(self, count):
        for _ in range(count):
            self.policy.learn_mode.forward(self.batch)
        return self.policy.state_dict()


def bits(state):
    return {name: value.view(np.int32) for name, value in state["params"].items()}


def main(setting, algorithm):
    runtime.prepare(runtime.Settings(**SETTINGS[setting]))
    unbroken, resumed = Learner(algorithm), Learner(algorithm)
    unbroken.learn(10)
    unbroken.age()
    cut = unbroken.learn(CUT - AGED)
    resumed.policy.load_state_dict(cut)
    denormal = sum(int(((x != 0) & (np.abs(x) < 1e-38)).sum()) for x in cut["params"].values())
    expected, found = bits(unbroken.learn(END - CUT)), bits(resumed.learn(END - CUT))
    print(algorithm, denormal, *(name for name, value in expected.items() if not np.array_equal(value, found[name])))


if __name__ == "__main__":
    main(*sys.argv[1:])
