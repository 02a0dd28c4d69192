"""Gumbel search in a learned model: results of mctx, and what goes wrong."""

import json
from pathlib import Path

import numpy as np
import pytest

from minding.engine.search.gumbel import GumbelOptions
from minding.engine.search.learned import Predicted, plan

# `gumbel_muzero_policy` of mctx in float64, with the models of `model`; the noise is that of mctx times its scale.
CASES = json.loads((Path(__file__).parent / "mctx_gumbel_muzero.json").read_text())["cases"]


def model(case):
    """The states, their legal actions and the model of a case, as mctx was given them."""
    rng, size, actions = np.random.default_rng(case["seed"]), case["latent"], case["actions"]
    step = rng.standard_normal((size + actions, size))
    reward, logits, value = (
        rng.standard_normal(size),
        2 * rng.standard_normal((size, actions)),
        3 * rng.standard_normal(size),
    )
    rng = np.random.default_rng(100 + case["seed"])
    latent = rng.standard_normal((case["n"], size))
    legal = rng.random((case["n"], actions)) < 0.7
    legal[:, 0] = True
    if case["noise"] is None:
        legal[:] = True

    def predict(latent):
        return Predicted(latent, latent @ reward, latent @ logits, latent @ value)

    def following(latent, action):
        return predict(np.tanh(np.concatenate([latent, np.eye(actions)[action]], axis=1) @ step))

    return predict(latent), legal, following


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['simulations']} simulations")
def test_search_equals_mctx(case):
    root, legal, following = model(case)
    options = GumbelOptions(case["simulations"], case["max_considered"], case["c_visit"], case["c_scale"])
    noise = None if case["noise"] is None else np.array(case["noise"])
    found = plan(root, following, options, case["gamma"], legal=legal, noise=noise)
    assert found.visits.tolist() == case["visits"]
    assert found.best.tolist() == case["action"]
    np.testing.assert_allclose(found.policy, case["policy"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.value, case["value"], rtol=1e-6)
    assert not found.policy[~legal].any()


def test_rewards_on_edges_and_the_discount_decide():
    # Action 0 earns 1 at once; action 1 earns 1 after one more step.
    def step(latent, action):
        reward = np.where(latent[:, 0] == 0, action == 0, latent[:, 0] == 2).astype(float)
        after = np.where(latent[:, 0] == 0, 1.0 + action, 3.0)[:, None]
        return Predicted(after, reward, np.zeros((len(after), 2)), np.zeros(len(after)))

    root = Predicted(np.zeros((1, 1)), np.zeros(1), np.zeros((1, 2)), np.zeros(1))
    found = plan(root, step, GumbelOptions(8, 2, 50.0, 0.1), 0.5)
    assert found.best[0] == 0
    assert found.action_value[0, 0] == pytest.approx(1.0)
    # Three of four returns through action 1 have the reward, half as large; the first is the model's value, 0.
    assert found.action_value[0, 1] == pytest.approx(0.5 * 3 / 4)


def test_of_two_players_each_chooses_for_itself():
    # Action 0 earns 1, after which the other player can earn 3; action 1 earns nothing, and neither can the other.
    def step(latent, action):
        reward = np.where(latent[:, 0] == 0, action == 0, np.where(latent[:, 0] == 1, 3 * (action == 1), 0)).astype(
            float
        )
        after = np.where(latent[:, 0] == 0, 1.0 + action, 3.0)[:, None]
        return Predicted(after, reward, np.zeros((len(after), 2)), np.zeros(len(after)))

    root = Predicted(np.zeros((1, 1)), np.zeros(1), np.zeros((1, 2)), np.zeros(1))
    found = plan(root, step, GumbelOptions(32, 2, 50.0, 1.0), -1.0)
    assert found.best[0] == 1
    # The first return through action 0 is the model's value, the second one has the other player's action 0.
    assert found.action_value[0, 0] == pytest.approx(1.0 - 3.0 * (found.visits[0, 0] - 2) / found.visits[0, 0])
    assert found.action_value[0, 1] == 0.0
