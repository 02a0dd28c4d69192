"""No random actions while collecting."""

from minding.engine.chain.context import OnlineRLContext
from minding.middleware import eps_greedy_handler, eps_greedy_masker


def test_it_takes_the_random_actions_of_the_schedule_away_and_nothing_else(counting_config):
    given = {"other": 1}
    ctx = OnlineRLContext(env_step=0, collect_kwargs=given)
    eps_greedy_handler(counting_config())(ctx)
    assert ctx.collect_kwargs["eps"] == 1.0
    eps_greedy_masker()(ctx)
    assert ctx.collect_kwargs == {"other": 1, "eps": 0.0}
    assert given == {"other": 1}
