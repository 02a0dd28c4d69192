"""Converts recorded data of any format to minding's own, block by block, and joins several sets."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minding.engine.checkpoint.manifest import MANIFEST
from minding.engine.checkpoint.store import MISFITS, first_line
from minding.engine.data.data_hints import MINARI, conversion, local_set
from minding.engine.data.dataset import check_dataset, joined
from minding.engine.data.dataset_writer import DatasetWriter
from minding.engine.data.description import differences
from minding.engine.data.episode import RECORDED, Episode
from minding.engine.data.inferred_spaces import with_limits
from minding.engine.data.references import References, carrying, common
from minding.engine.errors import DataError, nearest
from minding.engine.paths import expanded
from minding.training.formats import FORMATS, MAIN, D4RLSource, Source, SourceOptions, reading


@dataclasses.dataclass
class Converted:
    """The outcome of a conversion."""

    steps: int = 0
    episodes: int = 0
    dropped: int = 0
    skipped: int = 0
    ambiguous: int = 0


def open_source(
    name: str | Path,
    *,
    horizon: int | None = None,
    env: Mapping[str, Any] | None = None,
    action_low: Any = None,
    action_high: Any = None,
) -> Source:
    """Opens recorded data, whatever their format."""
    with reading(Path(name)):
        path = expanded(name)
        places = ((kind, place) for place in (path, local_set(str(name))) for kind in FORMATS)
        kind, place = next((each for each in places if each[0].fits(each[1])), (None, path))
        if horizon is not None and kind is not D4RLSource:
            raise DataError(
                f"--horizon {horizon} is only for D4RL files, and {str(name)!r} is not a D4RL file: leave --horizon out"
            )
        if kind is None:
            raise DataError(f"no data in {str(name)!r}{_hint(path)}")
        source = kind(place, SourceOptions(horizon, env, action_low, action_high))
        if action_low is None and action_high is None:
            return source if env is None else source.described_as(env)
        if env is not None:
            raise DataError(
                "--env already sets the limits of actions: leave out --action-low and --action-high, or --env"
            )
        try:
            limited = with_limits(source.env, action_low, action_high)
        except ValueError as error:
            raise DataError(f"{str(source.path)!r}: {error}") from None
        return source.described_as(limited)


def _hint(path: Path) -> str:
    if path.is_file():
        return conversion(path)
    if path.is_dir():
        return f": expected {MANIFEST}, or {MINARI} beside {MAIN}"
    if path.exists():
        return ": it is neither a file nor a folder"
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    sets = local_set("")
    local = [str(each.parent.parent.relative_to(sets)) for each in sets.glob(f"**/data/{MINARI}")]
    absent = ": there is no such file, folder or Minari set on this machine"
    return nearest(str(path), local) or nearest(path.name, beside) or absent


def convert(
    sources: Sequence[Source],
    out: str | Path,
    *,
    skip_damaged: bool = False,
    references: References | None = None,
    report: Callable[[Converted], None] = lambda done: None,
) -> Converted:
    """Writes all episodes of the sources, in order, to a new folder. If this fails, no folder is left."""
    env = sources[0].env
    for source in sources[1:]:
        _refuse_another(sources[0], source)
    if references is None:
        references = common(source.references for source in sources)
    about = carrying({"env": dict(env), "converted": [source.path.name for source in sources]}, references)
    done = Converted()
    with DatasetWriter(out, about) as writer:
        for source in sources:
            earlier, unclear = done.dropped, done.ambiguous
            for number, episode in enumerate(source.episodes()):
                problem = episode if isinstance(episode, ValueError) else problem_of(episode, about)
                if problem is None:
                    assert isinstance(episode, Episode)
                    writer.add(episode)
                    done.steps, done.episodes = done.steps + len(episode), done.episodes + 1
                elif skip_damaged:
                    done.skipped += 1
                else:
                    raise DataError(
                        f"{str(source.path)!r}, episode {number}: {problem}; --skip-damaged leaves out such episodes"
                    )
                done.dropped, done.ambiguous = earlier + source.dropped, unclear + source.ambiguous
                report(done)
    return done


def problem_of(episode: Episode, about: Mapping[str, Any], *, limits: bool = False) -> ValueError | None:
    """The fault of an episode as a sentence, also an observation outside of its `limits`; None if it has none."""
    try:
        check_dataset(joined([episode], about), single=True, limits=limits)
    except ValueError as error:
        return error
    except MISFITS as error:
        return ValueError(first_line(error))
    return None


def _refuse_another(first: Source, source: Source) -> None:
    different = [
        text
        for name in ("env_id", "wrappers", "observation", "env_action", "env_kwargs", "max_episode_steps")
        for text in differences(name, source.env.get(name), first.env.get(name))
    ]
    if different:
        # If both derived their spaces from their arrays.
        derived = all(each.env.get("env_id") == RECORDED for each in (first, source))
        hint = "; --env ID, or --action-low X --action-high X, gives both the same spaces" if derived else ""
        raise DataError(
            f"{str(source.path)!r} and {str(first.path)!r} have different environments and cannot be joined: "
            f"{different[0]} (there the second, here the first){hint}"
        )
