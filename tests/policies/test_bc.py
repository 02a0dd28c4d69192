"""BC: updates against float64 NumPy, and what a cloned policy does."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, composite, dict_of, discrete, space_of
from float64_networks import categorical, normal, scores

from minding.engine.chain.context import OfflineRLContext
from minding.middleware import offline_data_fetcher, trainer

pytestmark = pytest.mark.eager

CONTRACT = {
    "bc": (dict_of(a=VECTOR, b=discrete(2)), discrete(3), {}),
    "bc, box": (VECTOR, space_of(2, 2), {"policy.learn.loss": "log_likelihood", "policy.learn.grad_norm": 0.5}),
    "bc, composite": (VECTOR, composite(3, 2, numbers=2), {}),
}
RESUMES = {
    "BC, observations normalized, data mapped": (
        "CartPole-v1",
        ("policy.model.normalize_obs=true", "policy.other.data_memory=mapped"),
    )
}
BATCH = 16


CASES = {
    "choices": (discrete(3), "squared_error"),
    "numbers, squared error": (space_of(2), "squared_error"),
    "numbers, likelihood": (space_of(2), "log_likelihood"),
}


def bench_of(case):
    action, loss = CASES[case]
    learn = {"learning_rate": 0.01, "anneal_lr": False, "loss": loss}
    return kit.Bench(kit.make_policy("bc", VECTOR, action, learn), BATCH)


def expected_loss(case, p, rows):
    outputs, action = scores(p, "net.torso", rows["obs"]), rows["action"]
    if case == "choices":
        return -categorical(outputs, action.astype(int))[0].mean()
    if case == "numbers, squared error":
        return ((outputs - action) ** 2).sum(axis=1).mean()
    return -normal(outputs, p["net.head.log_std"], action)[0].mean()


@pytest.mark.parametrize("case", CASES)
def test_the_update_lowers_the_loss_of_its_formula(case):
    bench = bench_of(case)
    rows, losses = bench.rows(action=3), []
    for _ in range(30):
        expected = expected_loss(case, bench.params, rows)
        losses.append(bench.learn(rows).metrics["loss"])
        assert losses[-1] == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.shared_graphs
def test_a_cloned_policy_does_what_was_recorded():
    bench = bench_of("choices")
    rows = bench.rows(seed=1, action=3)
    for _ in range(300):
        bench.learn(rows)
    assert bench.policy.eval_mode.forward(rows["obs"]).tolist() == rows["action"].astype(int).tolist()


class Rows:
    """Recorded data in device tables."""

    digest = "a"

    def __init__(self, batches, values):
        self.batches, self.values = batches, values

    def __len__(self):
        return len(self.values["action"])

    def batch(self, index):
        return self.batches(self.values, index)


def test_the_weights_do_not_depend_on_steps_per_call():
    found = []
    for steps_per_call in (1, 7):
        learn = {"batch_size": 8, "steps_per_call": steps_per_call}
        bench = kit.Bench(kit.make_policy("bc", VECTOR, space_of(2), learn), 30)
        cfg = bench.policy.config
        # The learning rate falls to 0 within the run.
        cfg.run.max_train_iter = 16
        fetch = offline_data_fetcher(cfg, Rows(bench.batches, bench.rows(seed=2)))
        learn, ctx, rates = trainer(cfg, bench.policy.learn_mode), OfflineRLContext(), []
        while ctx.train_iter < 16:
            fetch(ctx)
            learn(ctx)
            rates += [ctx.train_output["learning_rate"]] * int(ctx.train_output["grad_steps"])
        assert ctx.train_iter == 16
        assert np.mean(rates) == pytest.approx(1e-3 * 17 / 32)
        found.append(bench.params)
    kit.check_bits(*found)
