"""Rules of board games, one game per file (see `engine.types.BoardGame`), and the symmetries of a square board."""

import numpy as np

from minding.engine.types import Array


def turned(planes: Array, board: Array, turns: int, mirrored: bool) -> tuple[Array, Array]:
    """Planes ``(n, C, S, S)`` and one number per square ``(n, S, S)``, turned by quarters and then mirrored."""
    forms = [np.rot90(each, turns, axes=(-2, -1)) for each in (planes, board)]
    if mirrored:
        forms = [each[..., ::-1] for each in forms]
    return np.ascontiguousarray(forms[0]), np.ascontiguousarray(forms[1])


def square_symmetries(planes: Array, policy: Array) -> list[tuple[Array, Array]]:
    """The eight symmetries of the square, four rotations, each also mirrored, if action k means square k."""
    board = policy.reshape(-1, *planes.shape[2:])
    every = [(turns, mirrored) for mirrored in (False, True) for turns in range(4)]
    forms = [turned(planes, board, *each) for each in every]
    return [(image, moved.reshape(policy.shape)) for image, moved in forms]
