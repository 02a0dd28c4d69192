"""When a table takes rows and gives samples (rate limiters of Cassirer et al., 2021,
https://arxiv.org/abs/2102.04736, section 3.4).

A limiter only answers whether an operation is allowed, and never waits: the caller decides how to wait. With I inserted
rows, S samples and r samples per insert:

    insert n   if the table then holds at most min_size rows, or (I + n) r - S <= max_diff
    sample n   if the table holds at least min_size rows, and I r - S - n >= min_diff
"""

import dataclasses
import math

from minding.engine.errors import ConfigError, nearest


@dataclasses.dataclass(frozen=True)
class Limiter:
    """Bounds the ratio of samples to inserted rows."""

    min_size: int = 1
    samples_per_insert: float = 1.0
    min_diff: float = -math.inf
    max_diff: float = math.inf

    def __post_init__(self) -> None:
        if self.min_size < 1:
            raise ConfigError(f"limiter: expected min_size of at least 1 row, got {self.min_size}")
        if not (math.isfinite(self.samples_per_insert) and self.samples_per_insert > 0):
            raise ConfigError(f"limiter: expected samples_per_insert > 0, got {self.samples_per_insert}")
        if not self.min_diff < self.max_diff:
            raise ConfigError(f"limiter: expected min_diff < max_diff, got {self.min_diff} and {self.max_diff}")

    @property
    def bounded(self) -> bool:
        """Whether inserts may have to wait for samples, and samples for inserts."""
        return math.isfinite(self.min_diff) and math.isfinite(self.max_diff)

    @property
    def rows_ahead(self) -> float:
        """The number of rows that may be inserted before the first sample."""
        return max(self.min_size, self.max_diff // self.samples_per_insert)

    def can_insert(self, count: int, size: int, inserted: int, sampled: int) -> bool:
        """Whether `count` rows may be inserted into a table of `size` rows, after that many inserts and samples."""
        if size + count <= self.min_size:
            return True
        return (inserted + count) * self.samples_per_insert - sampled <= self.max_diff

    def can_sample(self, count: int, size: int, inserted: int, sampled: int) -> bool:
        """Whether `count` samples may be drawn from a table of `size` rows, after that many inserts and samples."""
        if size < self.min_size:
            return False
        return inserted * self.samples_per_insert - sampled - count >= self.min_diff


def none() -> Limiter:
    """Allows samples as soon as the table holds a row, and all inserts."""
    return Limiter()


def min_size(rows: int) -> Limiter:
    """Allows samples once the table holds that many rows, and all inserts."""
    return Limiter(rows)


def least_error(samples_per_insert: float) -> float:
    """The smallest error of `ratio`, in samples: below it, neither inserts nor samples may be allowed."""
    return max(1.0, samples_per_insert)


def ratio(samples_per_insert: float, rows: int, error: float | tuple[float, float]) -> Limiter:
    """Keeps the ratio of samples to inserts, counted from the moment when the table first held that many rows.

    Args:
      error: maximum size of ``(I - rows) r - S`` in either direction, in samples; or `min_diff` and `max_diff` of the
        `Limiter`, as in Reverb, which are counted from the first row.
    """
    least = least_error(samples_per_insert)
    if isinstance(error, tuple):
        limiter = Limiter(rows, samples_per_insert, *error)
        if limiter.max_diff - limiter.min_diff < 2 * least:
            raise ConfigError(
                f"limiter ratio: expected bounds that are at least 2 max(1, samples_per_insert) = {2 * least:g} "
                f"samples apart, got {error}: below that, neither inserts nor samples may be allowed"
            )
        if limiter.min_diff > samples_per_insert * rows:
            raise ConfigError(
                f"limiter ratio: the first of the bounds {error} exceeds samples_per_insert x rows = "
                f"{samples_per_insert * rows:g}: the table would not be sampled when it holds its rows"
            )
        return limiter
    if not error >= least:
        raise ConfigError(
            f"limiter ratio: expected an error of at least max(1, samples_per_insert) = {least:g} samples, got "
            f"{error}: below that, neither inserts nor samples may be allowed"
        )
    middle = samples_per_insert * rows
    return Limiter(rows, samples_per_insert, middle - error, middle + error)


def queue(rows: int) -> Limiter:
    """Lets each row be sampled once, in the order of arrival; at most that many rows wait.

    For a table with the sampler and the remover ``fifo`` and ``max_times_sampled=1``.
    """
    return Limiter(1, 1.0, 0.0, float(rows))


def stack(rows: int) -> Limiter:
    """Lets each row be sampled once, the newest first; at most that many rows wait.

    For a table with the sampler and the remover ``lifo`` and ``max_times_sampled=1``.
    """
    return queue(rows)


LIMITERS = ("none", "min_size", "ratio", "queue", "stack")
"""The names of all limiters."""


def make_limiter(name: str, *, rows: int, samples_per_insert: float, error: float, what: str = "limiter") -> Limiter:
    """Returns the limiter of a name, see the functions of this module."""
    if name == "ratio":
        return ratio(samples_per_insert, rows, error)
    if name in LIMITERS:
        return none() if name == "none" else {"min_size": min_size, "queue": queue, "stack": stack}[name](rows)
    raise ConfigError(
        f"{what}={name!r} is unknown{nearest(str(name), LIMITERS)}; expected one of {', '.join(LIMITERS)}"
    )
