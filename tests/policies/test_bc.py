"""BC: updates against float64 NumPy, and what a cloned policy does."""

import kit
import pytest
from fakes import VECTOR, composite, dict_of, discrete, space_of
from float64_networks import categorical, normal, scores

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
