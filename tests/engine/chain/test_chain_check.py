"""The chain check and the pipeline view; declarations."""

import dataclasses
import functools

import pytest

from minding.engine import ChainError, Context, OfflineRLContext, OnlineRLContext, Role, Task, declare
from minding.engine.chain.check import check_chain, pipeline_view
from minding.engine.chain.middleware import declaration_of, name_of
from minding.engine.chain.pipeline import chain_nodes


def pass_on(ctx): ...


def make(name, **declared):
    """A declared middleware of this name."""

    def factory():
        def handle(ctx): ...

        return handle

    factory.__name__ = name
    return declare(**declared)(factory)()


collector = make("StepCollector", role="collect", reads=["env_step"], writes=["trajectories", "env_step"])
gae = make("gae_estimator", reads=["trajectories"], writes=["train_data"])
trainer = make("multistep_trainer", role="learn", reads=["train_data"], writes=["train_output", "train_iter"])
logger = make("online_logger", optional=["train_output", "env_step"])


def problem(*chain, context=OnlineRLContext, roles=None):
    with pytest.raises(ChainError) as caught:
        check_chain(chain, context, roles)
    return str(caught.value)


def test_every_callable_has_a_name_and_functions_declare_nothing():
    class Callable:
        def __call__(self, ctx): ...

    partial = functools.partial(functools.partial(pass_on))
    names = [name_of(fn) for fn in (pass_on, partial, Callable(), collector)]
    assert names == ["pass_on", "pass_on", "Callable", "StepCollector"]
    assert declaration_of(pass_on) is None


# Declarations


# Checks


@dataclasses.dataclass
class Mine(Context):
    seen: int = 0
    data: list | None = None

    def __post_init__(self):
        self.keep("seen")


class Pusher:
    def __call__(self, ctx): ...

    def requirements(self):
        return ["the policy acts on Discrete actions and the buffer holds Box actions"]


task = Task()
learner = make("OffPolicyLearner", role="learn", writes=["train_iter"])
evaluator = make("interaction_evaluator", role="evaluate", reads=["train_iter"])
fetcher = make("fetcher", role="learn", reads=["train_iter"], writes=["train_data"])
early, loop = make("early", reads=["trajectories"]), make("loop", reads=["obs"], writes=["obs"])
write_obs, write_both = make("a", writes=["obs"]), make("b", writes=["obs", "action"])
kept, dropped = make("a", reads=["seen", "total_step"]), make("a", reads=["data"])

FITTING = {
    "an on-policy chain": [evaluator, collector, gae, trainer, logger],
    "a read after an undeclared middleware": [pass_on, gae, trainer],
    "reads within composites": [task.serial(collector, task.wrap(gae)), trainer],
    "a read after parallel": [task.parallel(collector, logger), gae, pass_on],
    "a read after a parallel with an undeclared member": [task.parallel(pass_on, logger), gae, trainer],
    "a learner without a collector": [learner],
    "a collector whose rollouts are only counted": [evaluator, collector, logger],
    "a plain function that may read what was made": [collector, gae, pass_on],
    "one field written twice in serial": [task.serial(write_obs, make("b", optional=["obs"], writes=["obs"]))],
}


@pytest.mark.parametrize("chain", FITTING.values(), ids=FITTING)
def test_a_chain_that_fits_is_accepted(chain):
    check_chain(chain, OnlineRLContext)


both_learn = task.parallel(collector, make("evaluator", role="evaluate", writes=["eval_value"]))
nobody = "gae_estimator at position {} reads ctx.trajectories"


def test_all_problems_are_listed_at_once():
    assert "reads ctx.data" in problem(dropped, context=Mine)
    assert "a at position 0 reads ctx.env_step, which OfflineRLContext does not have" in problem(
        make("a", reads=["env_step"]), context=OfflineRLContext
    )
    text = problem(pass_on, collector, roles=[Role.LEARN, None])
    assert "pass_on at position 0 learns before StepCollector" in text
    check_chain([kept], Mine)
    check_chain([logger], OfflineRLContext)
    lines = problem(gae, trainer, make("a", writes=["obss"])).splitlines()
    assert lines[0] == "the chain has 2 problems:"
    assert lines[1].startswith("  1. a at position 2 writes ctx.obss")
    assert lines[2].startswith("  2. gae_estimator at position 0 reads ctx.trajectories")


# View


def test_the_pipeline_view_is_one_aligned_line_per_middleware():
    view = pipeline_view(chain_nodes([collector, Task().serial(gae, pass_on), logger, trainer]))
    assert view.splitlines() == [
        "       middleware         role     reads -> writes",
        "0      StepCollector      collect  env_step -> trajectories, env_step",
        "1      serial",
        "  1.0    gae_estimator             trajectories -> train_data",
        "  1.1    pass_on                   ?",
        "2      online_logger               (train_output), (env_step) -> nothing",
        "3      multistep_trainer  learn    train_data -> train_output, train_iter",
    ]
    with Task().start(ctx=OnlineRLContext()) as shown:
        assert repr(shown) == "Task (started, 0 middleware, total_step 0)"
        shown.use(collector).use(pass_on, role="learn")
    state, view = repr(shown).split("\n", 1)
    assert state == "Task (not started, 2 middleware, total_step 0)"
    assert view == pipeline_view(chain_nodes([collector, pass_on], [None, Role.LEARN]))
