"""The context: data that middleware pass to each other in an iteration, and the few values kept across iterations."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np

from minding.engine.errors import CheckpointError, nearest
from minding.engine.types import Array, EpisodeEnd, Obs

if TYPE_CHECKING:
    from minding.engine.data.batch import IndexedBatch
    from minding.engine.data.rollout import Rollout

UNITS = {"env_step": "environment steps", "train_iter": "gradient steps", "total_step": "iterations"}
"""The counters that measure the progress of runs, and the unit of each."""
_SCALARS = (bool, int, float, str, type(None))

# Sets an attribute past the check that it is a declared field.
_set = object.__setattr__

ContextT = TypeVar("ContextT", bound="Context")
_T = TypeVar("_T")


@dataclasses.dataclass
class Context:
    """Base of all contexts: a dataclass of which every iteration gets a new instance.

    Your own context is a dataclass that inherits from this one, gives every field a default, and names
    in `__post_init__` the fields that outlive the iteration::

        @dataclasses.dataclass
        class MyContext(Context):
            var1: int = 0
            var2: list | None = None

            def __post_init__(self):
                self.keep("var1")

    Only declared fields exist: anything else raises AttributeError. Fields are attributes, never
    ``ctx["x"]``.

    Attributes:
      total_step: finished iterations; always kept. Middleware of the first iteration see 0.
      unit: name of the kept counter that measures the progress of a run, one of `UNITS`; an attribute of the class.
    """

    total_step: int = 0

    unit: ClassVar[str] = "total_step"

    # Fields that a class always keeps; `keep` adds to them on the instance. A subclass whose __post_init__ does not
    # call super() therefore loses none of its base's kept fields.
    _kept: ClassVar[tuple[str, ...]] = ("total_step",)

    _clock_begin: ClassVar[int] = 0

    @property
    def clock(self) -> int:
        """The clock of the run, counted in `unit`: limits, schedules, evaluations and logs follow it."""
        count: int = getattr(self, self.unit)
        return count

    @property
    def clock_begin(self) -> int:
        """The clock at the start of this iteration, and so of the data that it collects; schedules use this value."""
        return self._clock_begin

    def begin_iteration(self) -> None:
        """Sets `clock_begin` to the current clock; `Task.run`, `renew` and `load_state_dict` call it."""
        _set(self, "_clock_begin", self.clock)

    def optional(self, name: str, kind: type[_T]) -> _T | None:
        """Returns the value of a field, or None if this context has no field of that name.

        Args:
          name: name of the field.
          kind: class of the value, for type checkers; it is not checked at run time.
        """
        value: _T | None = getattr(self, name) if name in self.__dataclass_fields__ else None
        return value

    def __post_init__(self) -> None:
        """For subclasses: call `keep` here."""

    def keep(self, *names: str) -> None:
        """Carries fields over to all following iterations.

        Args:
          names: fields whose values are numbers, strings, bools or None.
        Raises:
          AttributeError: a name is not a field of this context.
        """
        for name in names:
            if name not in self.__dataclass_fields__:
                raise AttributeError(f"keep({name!r}): {self._no_such_field(name)}")
        _set(self, "_kept", tuple(dict.fromkeys((*self._kept, *names))))

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the fields that outlive the iteration."""
        return self._kept

    def renew(self: ContextT) -> ContextT:
        """Returns the context of the next iteration.

        Kept fields carry over, the others start at their defaults, and `total_step` grows by one.

        Raises:
          TypeError: a kept field holds something other than a number, a string, a bool or None.
        """
        fresh = _make(type(self))
        if fresh._kept is not self._kept:
            fresh.keep(*self._kept)
        for name in self._kept:
            value = getattr(self, name)
            _set(fresh, name, value if type(value) in _SCALARS else _scalar(name, value))
        _set(fresh, "total_step", self.total_step + 1)
        fresh.begin_iteration()
        return fresh

    def state_dict(self) -> dict[str, Any]:
        """Returns the kept fields as ``{name: number, string, bool or None}``."""
        return {name: _scalar(name, getattr(self, name)) for name in self._kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the kept fields.

        Raises:
          CheckpointError: the fields in the state are not exactly those that this context keeps; nothing is set.
        """
        unknown = [name for name in state if name not in self._kept]
        missing = [name for name in self._kept if name not in state]
        if unknown or missing:
            raise CheckpointError(
                f"the saved context does not fit {type(self).__name__}: it lacks {missing}, and has "
                f"{unknown} that this one does not keep; start the task with the context class that the run "
                "was saved with"
            )
        for name, value in state.items():
            setattr(self, name, _scalar(name, value))
        self.begin_iteration()

    if not TYPE_CHECKING:
        # Type checkers report missing fields without this method.

        def __setattr__(self, name, value):
            if name in self.__dataclass_fields__:
                # Reported at the assignment, because the renewal of the context is far from it.
                if name in self._kept and type(value) not in _kept_types(type(self))[name]:
                    self._check_kept(name, value)
                _set(self, name, value)
            elif inspect.isdatadescriptor(getattr(type(self), name, None)):
                _set(self, name, value)
            else:
                raise AttributeError(self._no_such_field(name))

        def __getattr__(self, name):
            # Only called when the usual look-up fails.
            raise AttributeError(self._no_such_field(name))

    def __getitem__(self, name: object) -> NoReturn:
        raise TypeError(self._no_items(name))

    def __setitem__(self, name: object, value: object) -> NoReturn:
        raise TypeError(self._no_items(name))

    def _check_kept(self, name: str, value: Any) -> None:
        plain = _scalar(name, value)
        field, allowed = self.__dataclass_fields__[name], _kept_types(type(self))[name]
        if not isinstance(plain, tuple(allowed)) and plain is not field.default:
            declared = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
            raise TypeError(
                f"ctx.{name} is kept and declared as {declared}: expected a value of that type, got {value!r} of type "
                f"{type(value).__name__}"
            )

    def _no_such_field(self, name: str) -> str:
        fields = [field.name for field in dataclasses.fields(self)]
        return (
            f"{type(self).__name__} has no field {name!r}{nearest(name, fields) or '.'} Its fields are "
            f"{', '.join(fields)}; to add one, declare it in a subclass decorated with @dataclasses.dataclass"
        )

    def _no_items(self, name: object) -> str:
        return (
            f"ctx[{name!r}]: a context is a dataclass and not a dict, so that every field is declared and a "
            f"misspelt one is found; write ctx.{name}"
        )


_NAMED = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,), "None": (type(None),)}


_KEPT_TYPES: dict[type[Any], dict[str, frozenset[type]]] = {}


def _kept_types(context_type: type[Any]) -> dict[str, frozenset[type]]:
    """The types that a field may hold while it is kept, by name: those it declares, or any that can be kept."""
    found = _KEPT_TYPES.get(context_type)
    if found is not None:
        return found
    found = {}
    for field in dataclasses.fields(context_type):
        declared: Any = field.type
        parts: Sequence[Any] = declared.split("|") if isinstance(declared, str) else [declared]
        if typing.get_origin(declared) in (typing.Union, types.UnionType):
            parts = typing.get_args(declared)
        names = ["None" if part in (None, type(None)) else getattr(part, "__name__", str(part)) for part in parts]
        allowed = [_NAMED.get(name.strip(), _SCALARS) for name in names]
        found[field.name] = frozenset(itertools.chain.from_iterable(allowed))
    _KEPT_TYPES[context_type] = found
    return found


_UNCHECKED: dict[type[Any], type[Any]] = {}


def _make(context_type: type[ContextT]) -> ContextT:
    """Returns the same as ``context_type()``, without the check of each attribute that `__init__` sets.

    That check is most of the fixed cost of an iteration (6 of 8 us for 20 fields).
    """
    unchecked = _UNCHECKED.get(context_type)
    if unchecked is None:
        unchecked = type(context_type.__name__, (context_type,), {"__setattr__": object.__setattr__})
        _UNCHECKED[context_type] = unchecked
    context: ContextT = unchecked()
    context.__class__ = context_type
    return context


def _scalar(name: str, value: Any) -> bool | int | float | str | None:
    """Returns a kept value as a plain Python scalar (NumPy scalars are converted)."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, _SCALARS):
        return plain
    raise TypeError(
        f"ctx.{name} is kept and holds a {type(value).__name__}; kept fields are numbers, strings, bools or "
        f"None, because they are saved with every checkpoint: leave {name!r} out of keep(), or keep the data "
        "in the middleware's own state_dict"
    )


@dataclasses.dataclass
class LearningContext(Context):
    """Base of the contexts of chains that learn, and evaluate what they have learned."""

    train_iter: int = 0
    train_data: Mapping[str, Array] | IndexedBatch | None = None
    train_output: dict[str, float] | None = None
    eval_value: float | None = None
    eval_output: Sequence[EpisodeEnd] | None = None
    eval_params: Mapping[str, Array] | None = None
    last_eval_iter: int = -1
    last_eval_value: float = float("-inf")
    last_eval_clock: int = -1

    unit: ClassVar[str] = "train_iter"

    _kept: ClassVar[tuple[str, ...]] = (
        "total_step",
        "train_iter",
        "last_eval_iter",
        "last_eval_value",
        "last_eval_clock",
    )


@dataclasses.dataclass
class OnlineRLContext(LearningContext):
    """Context of chains that act in an environment while they learn; its clock is `env_step`.

    N environments, T time steps of a rollout. Further attributes: see `LearningContext`.

    Attributes:
      env_step: environment steps so far, over all environments (kept).
      env_episode: finished episodes so far (kept).
      collect_kwargs: keyword arguments of the policy's collect mode, such as ``eps``.
      obs, action, inference_output: the policy's current input, action and whole output, ``(N, ...)``.
      trajectories: the rollout just collected, an `engine.data.rollout.Rollout` of (T, N) arrays.
      trajectory_end_idx: flat indices ``t * N + n`` of the last step of each trajectory in it.
      episodes: whole episodes just collected.
      episode_stats: the episodes that finished during this iteration's collection.
      policy_lag: age, in learner iterations, of the weights that collected the rollout: ``{"min": a, "mean": b,
        "max": c}``.
    """

    env_step: int = 0
    env_episode: int = 0
    collect_kwargs: dict[str, object] = dataclasses.field(default_factory=dict)
    obs: Obs | None = None
    action: Array | None = None
    inference_output: Mapping[str, Array] | None = None
    trajectories: Rollout | None = None
    trajectory_end_idx: Array | None = None
    episodes: list[dict[str, Obs]] | None = None
    episode_stats: list[EpisodeEnd] | None = None
    policy_lag: dict[str, float] | None = None

    unit: ClassVar[str] = "env_step"

    _kept: ClassVar[tuple[str, ...]] = (*LearningContext._kept, "env_step", "env_episode")


@dataclasses.dataclass
class OfflineRLContext(LearningContext):
    """Context of chains that learn from recorded data; its clock is `train_iter`.

    Further attributes: see `LearningContext`.

    Attributes:
      train_epoch: whole passes over the data so far (kept).
      epoch_row: rows of the current pass that have been drawn (kept).
      data_eval: results of the evaluation on recorded data in this iteration, ``{name: number}``; None if there was
        none.
      last_data_eval_iter: `train_iter` at the last evaluation on recorded data, -1 before the first (kept).
    """

    train_epoch: int = 0
    epoch_row: int = 0
    data_eval: dict[str, float] | None = None
    last_data_eval_iter: int = -1

    _kept: ClassVar[tuple[str, ...]] = (*LearningContext._kept, "train_epoch", "epoch_row", "last_data_eval_iter")
