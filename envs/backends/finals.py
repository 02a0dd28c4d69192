"""Final observations and infos of vector environments that reset in the same step."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array
from minding.envs.guards.answers import InterfaceError, as_info, brief
from minding.envs.spaces.info import InfoForm

_NAMES = {"final_obs": ("final_obs", "final_observation"), "final_info": ("final_info",)}
"""Keys of info: the current name first, then the name before Gymnasium 1.0."""


def final_observations(info: Any, done: Array, space: spaces.Space[Any]) -> list[Any]:
    """The last observation of each episode that ended (`done`, bool ``(N,)``), in the order of the environments."""
    rows = _rows("final_obs", _given("final_obs", info, done), done, batched=isinstance(space, spaces.Tuple))
    for env, row in zip(np.flatnonzero(done), rows):
        if row is None:
            raise InterfaceError(_expected("final_obs", done, f"holds None for environment {env}"))
    return rows


def final_infos(info: Any, done: Array, form: InfoForm) -> list[dict[str, Any]]:
    """The declared entries of the last info of each of these episodes that are present; see `InfoForm.join`."""
    given = _given("final_info", info, done)
    if isinstance(given, Mapping) and not _by_number(given):
        given = {key: given[key] for key in form.keys if key in given}
        if not given:
            return [{} for _ in np.flatnonzero(done)]
    rows = _rows("final_info", given, done)
    return [{key: row[key] for key in form.keys if key in as_info(row, key)} for row in rows]


def _given(name: str, info: Any, done: Array) -> Any:
    """The value of a key of info under its current or its earlier name; InterfaceError if it is missing."""
    known = info if isinstance(info, Mapping) else {}
    given = next((known[each] for each in _NAMES[name] if each in known), None)
    if given is None:
        keys = ", ".join(map(repr, known)) or "nothing"
        raise InterfaceError(_expected(name, done, f"is missing (info holds {keys})"))
    return given


def _by_number(given: Mapping[Any, Any]) -> bool:
    return bool(given) and all(isinstance(key, (int, np.integer)) for key in given)


def _rows(name: str, given: Any, done: Array, batched: bool = False) -> list[Any]:
    """The entry of each environment whose episode ended. `given` may have an entry for each environment, or for each
    whose episode ended: in an array, a list or a tuple, or in the arrays of a dict, or (if `batched`) of a tuple. A
    dict may also have the numbers of environments as its keys."""
    envs = np.flatnonzero(done).tolist()
    if isinstance(given, Mapping) and _by_number(given):
        return [given.get(env) for env in envs]
    if isinstance(given, Mapping) or (batched and isinstance(given, tuple)):
        lengths, take = {len(leaf) for leaf in _leaves(given)}, _of_tree
    elif isinstance(given, (list, tuple)) or (isinstance(given, np.ndarray) and given.ndim):
        lengths, take = {len(given)}, _of_sequence
    else:
        raise InterfaceError(_expected(name, done, f"is {brief(given)}"))
    if lengths == {len(done)}:
        return [take(given, env) for env in envs]
    if lengths == {len(envs)}:
        return [take(given, place) for place in range(len(envs))]
    raise InterfaceError(_expected(name, done, f"has {' and '.join(map(str, sorted(lengths))) or 'no'} entries"))


def _leaves(given: Any) -> list[Any]:
    """The leaves of dicts and tuples, which are indexed by environment; a number without an axis becomes ``()``."""
    if isinstance(given, (Mapping, tuple)):
        children = given.values() if isinstance(given, Mapping) else given
        return [leaf for child in children for leaf in _leaves(child)]
    return [given if isinstance(given, list) or np.ndim(given) else ()]


def _of_tree(given: Any, row: int) -> Any:
    if isinstance(given, Mapping):
        return {key: _of_tree(child, row) for key, child in given.items()}
    return tuple(_of_tree(child, row) for child in given) if isinstance(given, tuple) else given[row]


def _of_sequence(given: Any, row: int) -> Any:
    return given[row]


def _expected(name: str, done: Array, found: str) -> str:
    what = "the last observation" if name == "final_obs" else "the info of the last step"
    ended = ", ".join(map(str, np.flatnonzero(done)))
    return (
        f"info[{name!r}] {found}, and episodes of environments {ended} ended in this step; with "
        f"AutoresetMode.SAME_STEP it has to hold {what} of each that ended, one entry for each of {len(done)} "
        "environments (others may be None), because the step returns the first observation of the next episode"
    )
