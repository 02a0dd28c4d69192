"""Rewards of an environment with goals, computed for any goal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minding.engine.errors import EnvError
from minding.engine.types import Array

_log = logging.getLogger("minding.envs")
_COMPARED = 32
"""Number of rows for which a rule is called one by one, to compare with one call for all of them."""
_TOGETHER, _DICTS, _ROWS = "arrays of many rows", "many rows and as many dicts of info", "one row at a time"


class GoalRule:
    """A function of an environment with goals, such as `compute_reward`, called for many rows at once.

    Environments define it for one row, ``(achieved (G,), desired (G,), info)``, or also for many, with an info of
    arrays ``(n, ...)`` or with n dicts. The first call finds the form that the function accepts, by comparison with
    calls for single rows: a form is used if it returns one number per row, the same as for the row alone if the
    function accepts that.

    Args:
      env: the environment.
      name: name of the function.
    """

    def __init__(self, env: Any, name: str) -> None:
        self._name = f"{type(env).__name__}.{name}"
        self._rule: Callable[..., Any] = getattr(env, name)
        self._form: str | None = None

    def __call__(self, achieved: Array, desired: Array, info: Mapping[str, Array]) -> Array:
        """Returns the values ``(n,)``.

        Args:
          achieved, desired: goals ``(n, ...)``.
          info: the declared entries of the steps' info, ``(n, ...)`` by name.

        Raises:
          EnvError: the function accepts rows in none of the forms; includes the error or the value it returned.
        """
        if self._form is None:
            self._form = self._find(achieved, desired, info)
        return _ask(self._rule, self._form, achieved, desired, info)

    def _find(self, achieved: Array, desired: Array, info: Mapping[str, Array]) -> str:
        count = len(achieved)
        some = np.unique(np.linspace(0, count - 1, min(count, _COMPARED)).astype(np.int64))
        # Compared once more with reached goals: a rule for one row may return one value for many rows.
        twice = np.tile(some, 2)
        wanted = np.concatenate([desired[some], achieved[some]])
        rows = achieved[twice], wanted, {name: values[twice] for name, values in info.items()}
        single, failure = self._try(_ROWS, *rows)
        for form in (_TOGETHER, _DICTS):
            found, _ = self._try(form, *rows)
            if found is not None and (single is None or np.allclose(found, single, 1e-4, 1e-5, equal_nan=True)):
                return form
        if single is None:
            raise EnvError(f"{self._name}{failure}{self._hint(failure, info)}")
        _log.info("%s takes %s, which is slower than many at once", self._name, _ROWS)
        return _ROWS

    def _try(self, form: str, achieved: Array, desired: Array, info: Mapping[str, Array]) -> tuple[Array | None, str]:
        try:
            found = _ask(self._rule, form, achieved, desired, info)
        except Exception as error:  # The environment is the user's program: it may raise anything.
            return None, f" raised {type(error).__name__}: {error}"
        if found.shape != (len(achieved),) or found.dtype.kind not in "biuf":
            return None, f" returned {found.dtype} {found.shape[1:]} for a row: expected a number"
        return found, ""

    def _hint(self, failure: str, info: Mapping[str, Array]) -> str:
        if " raised KeyError" not in failure:
            return ""
        return f"; its info holds what env.info_keys names, which is {', '.join(info) or 'nothing'}: name the key there"


def _ask(rule: Callable[..., Any], form: str, achieved: Array, desired: Array, info: Mapping[str, Array]) -> Array:
    """The values (n,) by a rule that takes rows in this form."""
    if form == _TOGETHER:
        return np.asarray(rule(achieved, desired, dict(info)))
    dicts = np.empty(len(achieved), object)
    dicts[:] = [{name: values[n] for name, values in info.items()} for n in range(len(achieved))]
    if form == _DICTS:
        return np.asarray(rule(achieved, desired, dicts))
    return np.array([rule(*row) for row in zip(achieved, desired, dicts)])
