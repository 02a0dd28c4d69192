"""The description of an environment in recorded data: made from settings, checked before use, compared with another."""

import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minding.engine.config.options import plain
from minding.engine.data.action_trees import joined_space, parts_of
from minding.engine.errors import SpaceError

_PARTS = ("env_id", "wrappers", "observation", "env_action", "env_kwargs", "max_episode_steps")
_NUMBERS = ("float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_MOST = 1 << 31
"""Maximum count of numbers in an observation or action, and of values of a discrete one."""
_SINGLE = ("box", "discrete", "multi_discrete")
_OBSERVATIONS = (*_SINGLE, "multi_binary", "action_mask", "dict", "tuple")
_DECISIVE = ("kind", "shape")
"""If one of these differs, other differences follow from it, such as bounds of another length, and are not named."""
_ABSENT = "missing"
_MOST_TEXT = 40


def describe(env: Mapping[str, Any]) -> dict[str, Any]:
    """The description of an environment in recorded data: a short form of the section `env` of a configuration."""
    spec = env["spec"]
    found: dict[str, Any] = plain({name: spec.get(name, env.get(name)) for name in _PARTS})
    return found


def check_description(env: Mapping[str, Any]) -> None:
    """Refuses a mapping that is not the description of an environment (see `describe`)."""
    check_parts(env)
    _check_space("observation", env.get("observation"), _OBSERVATIONS)
    action = env.get("env_action")
    if isinstance(action, Mapping) and "tree" in action:
        _check_rows(action)
    else:
        _check_space("env_action", action, _SINGLE)
        _check_action("env_action", env["env_action"])


def check_parts(env: Mapping[str, Any]) -> None:
    """Refuses a description whose entries besides the spaces are wrong, as `check_description` does."""
    limit, wrappers = env.get("max_episode_steps"), env.get("wrappers")
    _expect(isinstance(env.get("env_id"), str), "env_id", env.get("env_id"), "a name")
    _expect(isinstance(wrappers, list), "wrappers", wrappers, "a list")
    _expect(isinstance(env.get("env_kwargs"), Mapping), "env_kwargs", env.get("env_kwargs"), "a dict")
    _expect(limit is None or _is_count(limit), "max_episode_steps", limit, "an integer of 1 or more, or None")


def _expect(right: bool, name: str, value: Any, expected: str) -> None:
    if not right:
        raise ValueError(f"{name} is {str(value)[:60]!r}, expected {expected}")


def _is_count(value: Any, least: int = 1) -> bool:
    return type(value) is int and least <= value < 1 << 62


def _check_space(name: str, space: Any, kinds: tuple[str, ...]) -> None:
    _expect(isinstance(space, Mapping) and space.get("kind") in kinds, name, space, f"a space, {' or '.join(kinds)}")
    kind = space["kind"]
    if kind in ("dict", "tuple"):
        parts = space.get("spaces")
        _expect(isinstance(parts, dict if kind == "dict" else list) and len(parts) > 0, f"{name}.spaces", parts, "some")
        for key, part in parts.items() if kind == "dict" else enumerate(parts):
            _check_space(f"{name}.{key}", part, kinds)
    elif kind == "discrete":
        _expect(_is_count(space.get("n")) and space["n"] < _MOST, f"{name}.n", space.get("n"), "a count")
        _expect(type(space.get("start")) is int, f"{name}.start", space.get("start"), "an integer")
    elif kind in ("multi_discrete", "action_mask"):
        key = "nvec" if kind == "multi_discrete" else "counts"
        values = space.get(key)
        # The values of an action space may have several axes.
        flat = np.ravel(np.asarray(values, object)).tolist() if isinstance(values, list) else []
        good = len(flat) > 0 and all(map(_is_count, flat))
        _expect(good and sum(flat) < _MOST, f"{name}.{key}", values, "a list of counts")
    else:
        shape = space.get("shape")
        good = isinstance(shape, list) and all(_is_count(size, 0) for size in shape)
        _expect(good and math.prod(shape) < _MOST, f"{name}.shape", shape, f"a list of sizes, below {_MOST} numbers")
    if kind == "box":
        _check_limits(name, space)


def _check_rows(space: Mapping[str, Any]) -> None:
    """Checks the space of rows of a Tuple or Dict, which follows from its tree, see `engine.data.action_trees`."""
    _check_space("env_action.tree", space["tree"], (*_SINGLE, "dict", "tuple"))
    for path, part in parts_of(space["tree"]):
        _check_action(f"env_action.tree.{path}", {**part, "rescaled": False} if part["kind"] == "box" else part)
    try:
        expected = joined_space(space["tree"], rescale=bool(space.get("rescaled", False)))
    except SpaceError as error:
        raise ValueError(f"env_action.tree: {error}") from None
    odd = differences("env_action", dict(space), expected)
    if odd:
        raise ValueError(f"{odd[0]} ('here' is what follows from env_action.tree)")


def _check_action(name: str, space: Mapping[str, Any]) -> None:
    """Checks the entries that only spaces of actions have, see `engine.data.actions.ActionAdapter`."""
    kind, shape, start = space["kind"], space.get("shape"), space.get("start")
    sizes = shape if isinstance(shape, list) else [None]
    good = all(_is_count(size) for size in sizes) and (kind != "discrete" or not sizes)
    _expect(good, f"{name}.shape", shape, "a list of sizes")
    _expect(space.get("dtype") in _NUMBERS, f"{name}.dtype", space.get("dtype"), "a type of numbers")
    if kind == "box":
        rescaled = space.get("rescaled")
        finite = bool(np.isfinite(np.asarray([*np.ravel(space["low"]), *np.ravel(space["high"])], np.float64)).all())
        _expect(type(rescaled) is bool, f"{name}.rescaled", rescaled, "true or false")
        _expect(finite or not rescaled, f"{name}.rescaled", rescaled, "false, as limits are infinite")
    elif kind == "multi_discrete":
        starts = np.asarray(start if isinstance(start, list) else [None], object)
        good = all(type(each) is int for each in starts.ravel().tolist())
        good = good and starts.shape == np.shape(space["nvec"]) == tuple(sizes)
        _expect(good, f"{name}.start", start, "an integer for each count")


def _check_limits(name: str, space: Mapping[str, Any]) -> None:
    """Checks that the limits of a Box are numbers that fit its shape, with low at most high."""
    _expect(space.get("dtype") in _NUMBERS, f"{name}.dtype", space.get("dtype"), "a type of numbers")
    low, high = (_limit(f"{name}.{end}", space.get(end), space["shape"]) for end in ("low", "high"))
    _expect(bool((low <= high).all()), f"{name}.low", space["low"], f"at most {name}.high, {str(space['high'])[:60]}")


def _limit(name: str, value: Any, shape: list[int]) -> np.ndarray[Any, Any]:
    flat = value if isinstance(value, list) else [value]
    try:
        if not all(isinstance(each, list | numbers.Real) and not isinstance(each, bool) for each in flat):
            raise TypeError
        return np.broadcast_to(np.asarray(value, np.float64), shape)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {str(value)[:60]!r}, expected numbers of shape {shape}") from None


def differences(name: str, there: Any, here: Any) -> list[str]:
    """Each difference as ``'name.shape is [4] there, [3] here'``."""
    return [f"{path} is {_short(old)} there, {_short(new)} here" for path, old, new in _walk(name, there, here)]


def _walk(path: str, there: Any, here: Any) -> Iterator[tuple[str, Any, Any]]:
    if there == here:
        return
    if not (isinstance(there, Mapping) and isinstance(here, Mapping)):
        yield path, there, here
        return
    for key in _DECISIVE:
        if there.get(key) != here.get(key):
            yield f"{path}.{key}", there.get(key, _ABSENT), here.get(key, _ABSENT)
            return
    for key in dict.fromkeys([*there, *here]):
        old, new = (_children(side.get(key, _ABSENT)) for side in (there, here))
        yield from _walk(path if key == "spaces" else f"{path}.{key}", old, new)


def _children(value: Any) -> Any:
    """The spaces of a tuple by their number, like those of a dict by name; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return {str(i): item for i, item in enumerate(value)}
    return value


def _short(value: Any) -> str:
    text = value if value is _ABSENT else repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
