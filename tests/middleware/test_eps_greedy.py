"""The share of random actions over the run."""

import pytest

from minding.engine.chain.context import OnlineRLContext
from minding.middleware import eps_greedy_handler, eps_greedy_masker


@pytest.mark.parametrize(
    ("kind", "env_step", "eps"),
    [
        ("linear", 0, 0.9),
        ("linear", 50, 0.5),
        ("linear", 100, 0.1),
        ("linear", 1000, 0.1),
        ("exp", 0, 0.9),
        ("exp", 100, 0.1 + 0.8 * 0.36787944),
        ("exp", 10_000, 0.1),
        ("constant", 500, 0.9),
        ("piecewise", 25, 0.1 + 0.8 * 0.6),
        ("piecewise", 200, 0.1),
    ],
)
def test_eps_follows_its_schedule(counting_config, kind, env_step, eps):
    settings = {"kind": kind, "start": 0.9, "end": 0.1, "decay": 100}
    if kind == "piecewise":
        settings["points"] = [[0, 1], [0.5, 0.2], [1, 0]]
    cfg = counting_config(**{f"policy.other.eps.{key}": value for key, value in settings.items()})
    given = {"other": 1}
    ctx = OnlineRLContext(env_step=env_step, collect_kwargs=given)
    eps_greedy_handler(cfg)(ctx)
    assert ctx.collect_kwargs == {"other": 1, "eps": pytest.approx(eps)}
    assert given == {"other": 1}


def test_it_takes_only_the_schedules_random_actions_away(counting_config):
    given = {"other": 1}
    ctx = OnlineRLContext(env_step=0, collect_kwargs=given)
    eps_greedy_handler(counting_config())(ctx)
    assert ctx.collect_kwargs["eps"] == 1.0
    eps_greedy_masker()(ctx)
    assert ctx.collect_kwargs == {"other": 1, "eps": 0.0}
    assert given == {"other": 1}
