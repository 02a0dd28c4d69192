"""Decision Transformer: the loss against float64, and that acting is what was learned."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, discrete, space_of
from float64_networks import categorical
from test_recurrent import HEADS, LAYERS, LENGTH, gtrxl_rows

from minding.engine.data.batch import Recorded

pytestmark = pytest.mark.eager

TRANSFORMER = {
    "policy.model.hidden": [],
    "policy.model.memory_dim": 6,
    "policy.model.memory_layers": LAYERS,
    "policy.model.memory_heads": HEADS,
    "policy.model.memory_length": LENGTH,
}
CONTRACT = {"dt": (VECTOR, space_of(2, 2), TRANSFORMER), "dt, discrete": (VECTOR, discrete(3), TRANSFORMER)}
RESUMES = {"dt, data mapped": ("CartPole-v1", ("policy.other.data_memory=mapped",))}
STEPS, COUNT = 5, 3
INDEX = np.arange(STEPS * COUNT, dtype=np.int32).reshape(1, STEPS, COUNT)
RETURN = "return.1.0"
KINDS = {"numbers": {"action": space_of(2)}, "choices": {"action": discrete(3)}}
built, bench = kit.benches("dt", count=STEPS * COUNT, learn={"learning_rate": 0.01}, kinds=KINDS, **TRANSFORMER)


@pytest.fixture
def taught(bench):
    """A policy that was told of data, whose actions differ from 0."""
    recorded = Recorded(2, np.array([-8.0, 4.0]), lambda name, rows: np.zeros(0))
    bench.policy.take_recorded(recorded)
    bench.policy.params["net.head.linear.weight"].asnumpy()[...] *= 40.0
    return bench


def expected_loss(p, rows, valid, scale, choices):
    """Each sequence, one step after another."""
    memory = {name.removeprefix("net.memory."): value for name, value in p.items() if name.startswith("net.memory.")}
    losses = []
    for n in range(COUNT):
        state, last = None, None
        for t in range(STEPS):
            place = t * COUNT + n
            if not valid[t, n]:
                continue
            action = rows["action"][place]
            own = np.eye(choices)[int(action)] if choices else action
            if state is None:
                state, last = np.zeros((1, 6 + LENGTH * (1 + LAYERS * 6))), np.zeros_like(own)
            x = np.concatenate([rows["obs"][place], [rows[RETURN][place] / scale], last])
            state, last = gtrxl_rows(memory, x[None], state), own
            output = state[:, :6] @ p["net.head.linear.weight"].T + p["net.head.linear.bias"]
            chosen = -categorical(output, np.array([int(action)]))[0][0] if choices else 0.0
            losses.append(chosen if choices else ((output[0] - action) ** 2).sum())
    return np.mean(losses)


@pytest.mark.parametrize("bench", ["numbers", pytest.param("choices", marks=pytest.mark.slow)], indirect=True)
def test_the_update_lowers_the_loss_of_its_formula(taught):
    rows, choices = taught.rows(action=3), 3 if taught.kind == "choices" else 0
    valid = np.ones((STEPS, COUNT), np.float32)
    # One sequence begins with the third step of the others.
    valid[:2, 1] = 0.0
    losses = []
    for _ in range(10):
        batch = taught.batch(rows, INDEX)
        batch.valid = valid[None]
        expected = expected_loss(taught.params, rows, valid, 8.0, choices)
        losses.append(taught.policy.learn_mode.forward(batch).metrics["loss"])
        assert losses[-1] == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < losses[0]


def test_it_does_for_a_target_what_it_learned_for_such_returns(taught):
    """Its own actions, with the rewards that followed, are what it predicts."""
    taught.hold_still()
    mode, rng = taught.policy.eval_mode, np.random.default_rng(0)
    rows = {"obs": [], "action": [], "reward": []}
    mode.reset()
    for _ in range(STEPS):
        rows["obs"].append(rng.standard_normal((COUNT, 4)).astype(np.float32))
        rows["action"].append(mode.forward(rows["obs"][-1]))
        rows["reward"].append(rng.standard_normal(COUNT).astype(np.float32))
        mode.take_reward(rows["reward"][-1])
    before = np.cumsum(rows["reward"], axis=0) - rows["reward"]
    learned = {name: np.concatenate(rows[name]) for name in ("obs", "action")}
    assert np.abs(learned["action"]).max() < 1.0
    loss = {
        name: taught.learn({**learned, RETURN: to_go.reshape(-1).astype(np.float32)}, INDEX).metrics["loss"]
        for name, to_go in (("its own", 4.0 - before), ("constant", np.full_like(before, 4.0)))
    }
    assert loss["its own"] < 1e-9
    assert loss["constant"] > 1e-5


def test_the_target_is_the_best_return_or_the_settings(taught):
    params = taught.policy.params
    assert [params[f"net.{name}"].asnumpy().tolist() for name in ("target", "scale")] == [[4.0], [8.0]]
    state = taught.policy.state_dict()
    taught.policy.cfg.eval.target_return = 2.5
    taught.policy.load_state_dict(state)
    assert params["net.target"].asnumpy().tolist() == [2.5]
    taught.policy.cfg.eval.target_return = None
