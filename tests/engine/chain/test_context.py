"""Context: fields, kept fields, renewal, errors."""

import dataclasses
import pickle
from typing import Dict, List, Union  # noqa: UP035 (a user's context as in the documentation)

import numpy as np
import pytest
from fakes import refuses

from minding.engine import Context, OnlineRLContext


@dataclasses.dataclass
class MyContext(Context):
    # common
    total_step: int = 0
    var1: int = 0
    var2: int = 0
    var3: Union[Dict, List] = None  # noqa: UP006, UP007
    var4: List = None  # noqa: UP006

    def __post_init__(self):
        self.keep("var1", "var2")


def test_renew_makes_a_fresh_instance_with_fresh_fields():
    ctx = OnlineRLContext()
    ctx.env_step, ctx.collect_kwargs["eps"], ctx.obs = 7, 0.1, np.zeros(2)
    fresh = ctx.renew()
    assert type(fresh) is OnlineRLContext
    assert (fresh.env_step, fresh.collect_kwargs, fresh.obs) == (7, {}, None)
    assert ctx.collect_kwargs == {"eps": 0.1}


@pytest.mark.parametrize("calls_super", [False, True])
def test_a_subclass_keeps_inherited_and_added_fields(calls_super):
    @dataclasses.dataclass
    class Mine(OnlineRLContext):
        seen: int = 0
        later: int = 0

        def __post_init__(self):
            if calls_super:
                super().__post_init__()
            self.keep("seen")

    ctx = Mine(env_step=4, seen=2).renew()
    ctx.keep("later")
    ctx.later = 9
    ctx = ctx.renew().renew()
    assert (ctx.env_step, ctx.seen, ctx.later, ctx.kept[-2:]) == (4, 2, 9, ("seen", "later"))


def test_a_property_of_a_subclass_can_be_set():
    @dataclasses.dataclass
    class Mine(Context):
        half: int = 0

        @property
        def whole(self):
            return 2 * self.half

        @whole.setter
        def whole(self, value):
            self.half = value // 2

    ctx = Mine()
    ctx.whole = 10
    assert ctx.half == 5


@dataclasses.dataclass
class Declared(Context):
    whole: int = 0
    part: float = 0.0
    name: str | None = None
    given: int = None  # As users write it.
    rest: Dict[str, int] = None  # noqa: UP006

    def __post_init__(self):
        self.keep("whole", "part", "name", "given", "rest")


def test_kept_fields_take_values_of_their_types_only():
    ctx = Declared()
    for field, values in {
        "whole": (3, np.int64(3), True),
        "part": (3, 0.5, np.float32(0.5), float("nan")),
        "name": ("a", None),
        "given": (3, None),
        "rest": (1, "a", None),
    }.items():
        for value in values:
            setattr(ctx, field, value)
            assert getattr(ctx, field) is value
    refuses(TypeError, ("ctx.env_step", lambda: setattr(OnlineRLContext(), "env_step", "7")))
    for value in (np.zeros(3), np.array(1.0), [1], {"a": 1}, (1,), 1j):
        refuses(TypeError, (f"ctx.var1 is kept and holds a {type(value).__name__}", MyContext(var1=value).renew))


def test_state_dict_holds_the_kept_fields_as_python_numbers():
    state = MyContext(total_step=4, var1=np.int32(2), var3=[1]).state_dict()
    assert state == {"total_step": 4, "var1": 2, "var2": 0}
    ctx = MyContext()
    ctx.load_state_dict(state)
    assert (ctx.total_step, ctx.var1) == (4, 2)
    renewed = OnlineRLContext(env_step=np.int64(3), last_eval_value=np.float32(0.5)).renew()
    assert [type(value) for value in (state["var1"], renewed.env_step, renewed.last_eval_value)] == [int, int, float]


def test_contexts_can_be_pickled():
    ctx = MyContext(var1=1, var3={"a": np.arange(3)})
    ctx.keep("var4")
    copy = pickle.loads(pickle.dumps(ctx))  # noqa: S301
    assert (copy.var1, copy.var3["a"].tolist()) == (1, [0, 1, 2])
    assert copy.kept == ("total_step", "var1", "var2", "var4")
    with pytest.raises(AttributeError):
        copy.var9 = 1
