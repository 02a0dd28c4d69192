"""Episodes from arrays, such as the logs of a real process; errors name the place of any ambiguous value."""

import contextlib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from minding.engine.data.action_trees import ActionTree
from minding.engine.data.description import check_description
from minding.engine.data.episode import Episode
from minding.engine.data.inferred_spaces import box_of, fitted, infer_spaces, with_limits
from minding.engine.data.observation import ACTION_MASK
from minding.engine.errors import DataError, MindingError, ShapeError, nearest
from minding.engine.types import Array

_PARTS = ("obs", "action", "reward", "terminated", "truncated")
_A_FLAG = "true or false, as bool or as 0 and 1"


def episodes_of_arrays(
    episodes: Iterable[Mapping[str, Any]], env: Any = None, *, action_low: Any = None, action_high: Any = None
) -> tuple[list[Episode], dict[str, Any]]:
    """The episodes in the dtypes of their environment, and its description; see `Dataset.of_episodes`."""
    made: list[Episode] = []
    given = _listed(episodes)
    with _naming("of_episodes"):
        known = None if env is None else _of_environment(env, action_low, action_high)
    codec = ActionTree(known["env_action"]) if known is not None and "tree" in known["env_action"] else None
    for number, parts in enumerate(given):
        with _naming(f"episode {number}"):
            episode = _episode(parts, codec)
            if made:
                _check_alike(episode, made[0])
                _check_columns(_columns(parts), _columns(given[0]))
            elif env is None:
                _check_images(episode)
            made.append(episode)
    described = known
    if described is None:
        with _naming("of_episodes"):
            described = with_limits(infer_spaces(made, action_low, action_high), action_low, action_high)
    for number, episode in enumerate(made):
        with _naming(f"episode {number}"):
            made[number] = fitted(episode, described)
    return made, described


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Turns a ValueError into a DataError that begins with a name."""
    try:
        yield
    except MindingError:
        raise
    except ValueError as error:
        raise DataError(f"{what}: {error}") from None


def _of_environment(env: Any, action_low: Any, action_high: Any) -> dict[str, Any]:
    """The description of the given environment."""
    if not (action_low is None and action_high is None):
        raise ValueError("env= has limits of actions: leave out action_low= and action_high=, or env=")
    if isinstance(env, Mapping):
        try:
            check_description(env)
        except ValueError as error:
            raise ValueError(
                f"env= does not describe an environment ({error}): expected the id of an environment, such as "
                "env='Pendulum-v1', or the data.about['env'] of other recorded data"
            ) from None
        return dict(env)
    # Recorded data need no environments but here, where the user names one.
    found: dict[str, Any] = importlib.import_module("minding.envs.recorded_spec").describe_environment(env)
    return found


def _listed(episodes: Any) -> list[Any]:
    if isinstance(episodes, Mapping):
        raise DataError("of_episodes: expected a list of episodes, got one dict: write [episode]")
    if isinstance(episodes, (str, bytes)) or not isinstance(episodes, Iterable):
        raise DataError(f"of_episodes: expected a list of episodes, got {type(episodes).__name__}")
    given = list(episodes)
    if not given:
        raise DataError("of_episodes: expected at least one episode, got an empty list")
    return given


def _episode(parts: Any, codec: ActionTree | None) -> Episode:
    if not isinstance(parts, Mapping):
        raise ValueError(f"expected a dict with {', '.join(_PARTS)}, got {type(parts).__name__}")
    for name in parts:
        if name == ACTION_MASK:
            raise ValueError(f"{name!r} belongs into obs: write obs={{'observation': ..., {name!r}: ...}}")
        if name not in _PARTS:
            raise ValueError(
                f"unknown part {name!r}{nearest(str(name), _PARTS) or '.'} Expected only {', '.join(_PARTS)}: leave it "
                "out"
            )
    missing = [name for name in _PARTS if name not in parts]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}: expected {', '.join(_PARTS)}")
    reward = rewards_of(parts["reward"])
    steps = len(reward)
    action = parts["action"]
    if codec is not None and isinstance(action, Mapping | tuple):
        try:
            action = codec.join(action, (steps,))
        except ShapeError as error:
            raise ValueError(str(error)) from None
    action = _numbers(action, "action")
    _check_rows("action", action, steps, "one for each reward")
    if action.dtype.kind != "f":
        action = without_column(action)
    obs = _parts(parts["obs"], steps)
    if action.dtype.kind == "f":
        action = _single(action)
        _check_finite("action", action)
    elif ACTION_MASK in obs:
        obs[ACTION_MASK] = as_flags(obs[ACTION_MASK], f"obs {ACTION_MASK!r}")
    _check_finite("reward", reward)
    terminated, truncated = ending(parts["terminated"], parts["truncated"], steps)
    return Episode(
        obs={path: values[:-1] for path, values in obs.items()},
        final_obs={path: values[-1] for path, values in obs.items()},
        action=action,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
    )


def rewards_of(values: Any) -> Array:
    """Rewards as float32 ``(T,)``; a column ``(T, 1)`` is one number for each step, too."""
    found = _numbers(values, "reward")
    reward = without_column(found)
    if reward.ndim != 1:
        raise ValueError(f"reward has the shape {found.shape}, expected (T,), one number for each step")
    if not len(reward):
        raise ValueError("reward is empty: there are no steps; leave the episode out")
    return _single(reward)


def without_column(values: Array) -> Array:
    """Values ``(T, 1)``, as many programs store one number for each step, as ``(T,)``; others unchanged."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _parts(given: Any, steps: int) -> dict[str, Array]:
    """The arrays of the observations by path; a plain array has the empty path."""
    named = dict(given) if isinstance(given, Mapping) else {"": given}
    if not named:
        raise ValueError("obs is an empty dict, expected an array, or arrays by name")
    obs = {}
    for path, values in named.items():
        if isinstance(given, Mapping) and not (isinstance(path, str) and all(path.split("."))):
            raise ValueError(
                f"obs has a part named {path!r}, expected a string such as 'arm' or, within another part, 'arm.angle'"
            )
        name = f"obs {path!r}" if path else "obs"
        found = _numbers(values, name)
        _check_rows(name, found, steps + 1, f"one more than the {steps} rewards: the last follows the last step")
        # Images of bytes stay bytes.
        obs[path] = found if found.dtype == np.uint8 and found.ndim == 4 else _single(found)
        _check_finite(name, obs[path])
        _check_distinct(name, found, obs[path])
    return obs


def _check_distinct(name: str, given: Array, single: Array) -> None:
    """Refuses numbers most of whose changes float32 loses, such as seconds since 1970."""
    if given.dtype == single.dtype:
        return
    changes = (given[1:] != given[:-1]).reshape(len(given) - 1, -1)
    kept = (single[1:] != single[:-1]).reshape(len(given) - 1, -1)
    lost = changes.sum(axis=0) > 2 * kept.sum(axis=0)
    if lost.any():
        place = int(np.argmax(lost))
        number = given.reshape(len(given), -1)[0, place]
        raise ValueError(
            f"{name} changes in component {place} by less than float32 can resolve at {number:.10g}: subtract a "
            "constant, such as the time at which the episode began"
        )


def _check_images(episode: Episode) -> None:
    """Refuses images whose channels come last; not needed where the environment is given."""
    for path, values in episode.obs.items():
        shape = values.shape[1:]
        if values.dtype == np.uint8 and shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4):
            raise ValueError(
                f"{f'obs {path!r}' if path else 'obs'} has images of the shape {shape}, which are height, width and "
                "channels: give the channels first, as np.moveaxis(images, -1, 1) does"
            )


def _numbers(values: Any, name: str) -> Array:
    masked = int(np.sum(values.mask)) if isinstance(values, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(
            f"{name} is a masked array with {masked:,} masked values, expected numbers only: fill them, or leave the "
            "episode out"
        )
    if isinstance(values, Mapping):
        raise ValueError(f"{name} is a dict, expected an array; name parts within parts by path, as 'arm.angle'")
    try:
        found = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} has rows of different shapes, expected one array of numbers") from None
    if found.dtype.kind in "biuf":
        return found
    first = found.flat[0] if found.size else None
    if isinstance(first, Mapping):
        raise ValueError(f"{name} is a list of dicts, expected an array, or a dict of arrays, one for each name")
    kind = {"c": "complex numbers", "U": "text", "S": "text"}.get(found.dtype.kind, f"{found.dtype} values")
    raise ValueError(f"{name} holds {kind}, such as {str(first)[:40]!r}, expected real numbers")


def _check_rows(name: str, values: Array, expected: int, why: str) -> None:
    if not values.ndim:
        raise ValueError(f"{name} is a single number, expected {expected} rows ({why})")
    if len(values) != expected:
        raise ValueError(f"{name} has {len(values)} rows, expected {expected} ({why})")


def _check_finite(name: str, values: Array) -> None:
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    row = int(np.argmax(~np.isfinite(values).reshape(len(values), -1).all(axis=1)))
    last = name.startswith("obs") and row == len(values) - 1
    place = f"after the last step ({row - 1})" if last else f"at step {row}"
    number = values[row].ravel()[~np.isfinite(values[row].ravel())][0]
    raise ValueError(f"{name} holds NaN or infinity {place} ({number}), expected finite numbers that float32 can hold")


def _check_alike(episode: Episode, first: Episode) -> None:
    """Raises ValueError unless an episode has the parts, shapes and kinds of numbers of the first."""
    if episode.obs.keys() != first.obs.keys():
        raise ValueError(f"obs has the parts {sorted(episode.obs)}, episode 0 has {sorted(first.obs)}")
    pairs = [(f"obs {path!r}" if path else "obs", episode.obs[path], first.obs[path]) for path in first.obs]
    for name, values, model in (*pairs, ("action", episode.action, first.action)):
        if values.shape[1:] != model.shape[1:]:
            raise ValueError(f"{name} has rows of the shape {values.shape[1:]}, in episode 0 {model.shape[1:]}")
        kinds = [{"u": "i"}.get(each.dtype.kind, each.dtype.kind) for each in (values, model)]
        if kinds[0] != kinds[1] and name == "action":
            raise ValueError(f"{name} is {values.dtype}, in episode 0 {model.dtype}: give all as one kind of number")
        if box_of(values)["dtype"] != box_of(model)["dtype"]:
            raise ValueError(f"{name} is {values.dtype}, in episode 0 {model.dtype}: only one of them is an image")


def _columns(parts: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The names of the columns of each table, such as a DataFrame, among the parts of an episode."""
    obs = parts["obs"] if isinstance(parts["obs"], Mapping) else {"": parts["obs"]}
    tables = {**{f"obs {path!r}" if path else "obs": each for path, each in obs.items()}, "action": parts["action"]}
    return {name: list(each.columns) for name, each in tables.items() if hasattr(each, "columns")}


def _check_columns(columns: Mapping[str, list[Any]], first: Mapping[str, list[Any]]) -> None:
    """Raises ValueError unless tables have the columns of the first episode in its order: places decide, not names."""
    for name in columns.keys() & first.keys():
        if columns[name] != first[name]:
            raise ValueError(
                f"{name} has the columns {columns[name]}, in episode 0 {first[name]}: give the same ones in the same "
                "order"
            )


def _single(values: Array) -> Array:
    # A number that becomes infinite is reported as such.
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def as_flags(values: Any, name: str, first: int = 0, unit: str = "step") -> Array:
    """An array of flags, bools or numbers that are 0 or 1, ``(T, ...)`` or a single one, as bool."""
    flags = np.asarray(values)
    if flags.dtype == np.bool_:
        return flags
    if flags.dtype.kind not in "iuf":
        shown = f"{flags.dtype} {flags.shape}" if flags.ndim else f"{values!r}"[:60]
        raise ValueError(f"{name} is {shown}, expected {_A_FLAG}")
    wrong = np.argwhere((flags != 0) & (flags != 1))
    if len(wrong):
        place = f" at {unit} {first + int(wrong[0][0])}" if flags.ndim else ""
        raise ValueError(f"{name} is {flags[tuple(wrong[0])]}{place}, expected {_A_FLAG}")
    return flags.astype(np.bool_)


def ending(terminated: Any, truncated: Any, steps: int) -> tuple[bool, bool]:
    """Returns whether an episode terminated, and whether it was truncated."""
    named = (("terminated", terminated), ("truncated", truncated))
    ends = [flag_of_last_step(values, name, steps) for name, values in named]
    if all(ends):
        raise ValueError(
            "terminated and truncated are both set: expected one of them at most; a true end within the time limit is "
            "terminated only"
        )
    return ends[0], ends[1]


def flag_of_last_step(values: Any, name: str, steps: int) -> bool:
    """Whether a flag is set at the last of `steps` steps, of one flag or one for each; ValueError as in `ending`."""
    flags = as_flags(values, name)
    if not flags.ndim:
        return bool(flags)
    if flags.shape == (steps, 1):
        flags = flags[:, 0]
    if flags.shape != (steps,):
        raise ValueError(f"{name} has the shape {flags.shape}, expected one flag, or one for each of the {steps} steps")
    if flags[:-1].any():
        raise ValueError(
            f"{name} is set at step {int(np.argmax(flags))} of {steps}, but the episode continues: expected it at the "
            "last step only; make two episodes of it"
        )
    return bool(flags[-1])
