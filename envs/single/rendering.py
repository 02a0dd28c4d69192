"""The renderer of MuJoCo: one choice for DeepMind Control and Gymnasium, which is made before either is imported."""

import contextlib
import ctypes
import functools
import os
from typing import Any

_OFF = "off"
_LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}


@functools.cache
def choose_renderer() -> None:
    """Chooses a renderer that works without a display, unless there is a display or the user chose one.

    Without a choice Gymnasium tries all of them, and their second failure in a process aborts it.
    """
    if "MUJOCO_GL" in os.environ or "DISPLAY" in os.environ:
        return
    os.environ["MUJOCO_GL"] = _OFF
    for name, library in _LIBRARIES.items():
        with contextlib.suppress(OSError):
            ctypes.CDLL(library)
            os.environ["MUJOCO_GL"] = name
            return


def reason_against(env: Any) -> str:
    """Why an environment cannot draw images here, with the remedy; empty if it may be able to."""
    names = (f"{kind.__module__}.{kind.__qualname__}".lower() for kind in type(env.unwrapped).__mro__)
    if os.environ.get("MUJOCO_GL") != _OFF or not any("mujoco" in name or "dm_control" in name for name in names):
        return ""
    return (
        "MuJoCo cannot draw images without a display, EGL or OSMesa: install libegl1 or libosmesa6 (apt-get install "
        "libegl1), and leave MUJOCO_GL unset"
    )
