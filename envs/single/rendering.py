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
    """Chooses a renderer that works without a display, unless there is a display or the user chose one. Without a
    choice Gymnasium tries all of them, and their second failure in a process aborts it."""
    if "MUJOCO_GL" in os.environ or "DISPLAY" in os.environ:
        return
    os.environ["MUJOCO_GL"] = _OFF
    for name, library in _LIBRARIES.items():
        with contextlib.suppress(OSError):
            if _draws(ctypes.CDLL(library)):
                os.environ["MUJOCO_GL"] = name
                return


def _draws(library: ctypes.CDLL) -> bool:
    """Whether a library can draw: EGL is of no use without a device, such as where a container lacks the driver."""
    if not hasattr(library, "eglGetProcAddress"):
        return True
    library.eglGetProcAddress.restype = ctypes.c_void_p
    query, count = library.eglGetProcAddress(b"eglQueryDevicesEXT"), ctypes.c_int()
    if query:
        kind = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        kind(query)(0, None, ctypes.byref(count))
    return count.value > 0


def reason_against(env: Any) -> str:
    """Why an environment cannot draw images here, with the remedy; empty if it may be able to."""
    names = (f"{kind.__module__}.{kind.__qualname__}".lower() for kind in type(env.unwrapped).__mro__)
    if os.environ.get("MUJOCO_GL") != _OFF or not any("mujoco" in name or "dm_control" in name for name in names):
        return ""
    return (
        "MuJoCo cannot draw images without a display, a device of EGL, or OSMesa: install libegl1 with libegl-mesa0, "
        "or libosmesa6 (apt-get install libegl1 libegl-mesa0), and leave MUJOCO_GL unset"
    )
