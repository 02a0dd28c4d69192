"""Timers of iterations and of returns."""

from minding.engine.chain.context import OnlineRLContext
from minding.middleware.timers import EvalTime, epoch_timer, reward_timer


class Clock:
    def __init__(self):
        self.now = 10.0

    def __call__(self):
        return self.now


def run_iteration(timer, clock, ctx, seconds):
    second_half = timer(ctx)
    next(second_half)
    clock.now += seconds
    assert next(second_half, None) is None


def test_epoch_timer_measures_whole_iterations(caplog):
    caplog.set_level("INFO")
    clock = Clock()
    timer = epoch_timer(3, clock=clock)
    for step, seconds in enumerate([0.5, 0.25, 1.5]):
        run_iteration(timer, clock, OnlineRLContext(total_step=step), seconds)
    assert (timer.median, timer.mean) == (0.5, 0.75)
    assert caplog.messages == ["iteration 3: median 500.00 ms, mean 750.00 ms over the last 3"]


def test_epoch_timer_forgets_older_iterations():
    clock = Clock()
    timer = epoch_timer(1, clock=clock)
    for seconds in (8.0, 2.0):
        run_iteration(timer, clock, OnlineRLContext(), seconds)
    assert timer.median == 2.0


def test_reward_timer_notes_the_first_evaluation_at_the_target(caplog):
    caplog.set_level("INFO")
    clock = Clock()
    timer = reward_timer(475.0, clock=clock)
    for env_step, value in [(0, 20.0), (100, None), (200, 480.0), (300, 500.0)]:
        timer(OnlineRLContext(env_step=env_step, eval_value=value))
        clock.now += 2.0
    assert timer.evaluations == [EvalTime(0.0, 0, 20.0), EvalTime(4.0, 200, 480.0), EvalTime(6.0, 300, 500.0)]
    assert timer.reached == EvalTime(4.0, 200, 480.0)
    assert "target 475 reached: return 480.00 after 4.0 s and 200 environment steps" in caplog.messages


def test_reward_timer_goes_on_after_a_resume():
    clock = Clock()
    timer = reward_timer(1.0, clock=clock)
    timer(OnlineRLContext(env_step=1, eval_value=2.0))
    clock.now += 5.0
    resumed = reward_timer(1.0, clock=clock)
    resumed.load_state_dict(timer.state_dict())
    resumed(OnlineRLContext(env_step=9, eval_value=3.0))
    assert resumed.evaluations == [EvalTime(0.0, 1, 2.0), EvalTime(5.0, 9, 3.0)]
    assert resumed.reached == EvalTime(0.0, 1, 2.0)
