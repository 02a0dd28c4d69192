"""The one place that imports MindSpore and prepares the process for it.

All other modules write ``from minding.engine.process.runtime import ms, nn, ops``, which loads MindSpore but leaves
open everything that depends on the configuration. `prepare` sets that, once per process: policies call it with the
settings of their configuration before they build anything; code that needs MindSpore without a policy gets the
defaults. Environment variables that the user has set are respected. The reason for each setting was measured with
MindSpore 2.10 on CPU:

- ``MS_DEV_HOST_BLOCKING_RUN=1``: otherwise helper threads spin and small graphs run many times slower.
- ``ONEDNN_MAX_CPU_ISA=AVX2`` if networks may have convolutions of MindSpore, which a user's encoder may have and which
  replace our kernels where these are not compiled: on AVX-512 processors oneDNN picks a reference kernel for them (40
  times slower). Everything else is faster without it.
- two dispatch threads and ``MS_DEV_RUNTIME_CONF=new_pipeline:false``: with one thread (MindSpore's choice on two cores)
  a message between actors launches every kernel. With two, a plain loop in another thread does, which takes half as
  long per kernel, but the thread has to be woken: 0.3 ms per call against 0.1 ms. Graphs of a few small kernels, such
  as DQN's update, take 0.6 times as long with one. The new pipeline would add a helper thread that spins on an empty
  queue.
- one thread for MindSpore's kernels: with two, an update of small networks takes 1.3 times as long. Without AVX-512 the
  last bits depend on the number of threads, and with MindSpore's convolutions they differ from run to run. More threads
  help with these, and in installations without our kernels, which have their own threads. MindSpore only finds a second
  thread if the pool, which the first graph creates, is created for one dispatch thread; graphs that are compiled after
  that setting use the plain loop.
- one BLAS thread in NumPy, whatever ``OMP_NUM_THREADS`` says: with several, products round differently, and acting
  multiplies small matrices, for which a second thread costs more than it gains (a row by 128 x 128: 2.7 us against
  6.7 us, and a millisecond when another process wants the core).
- the compiler cache stays off: it matches graphs by order, and silently returns the result of another function.
- one heap of the C library: with one heap per thread, each short run in a process left 1 to 2 MB more in gaps.
- signal handlers run on a separate stack: oneDNN's matrix products use the stack pointer for other purposes.
- compiler dumps go to a cache folder, not into the user's current folder.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import gc
import importlib
import importlib.util
import os
import random
import shutil
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.console import console_logger
from minding.engine.errors import SetupError, ShapeError
from minding.engine.process import floats
from minding.engine.process.signals import use_signal_stack
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array

DEVICES = ("auto", "CPU", "Ascend", "GPU")
_DEVICE_FILES = {"Ascend": "davinci*", "GPU": "nvidia[0-9]*"}
"""Files that the drivers create in ``/dev``."""
_DISPATCH_THREADS = 2
_CONF = "MS_DEV_RUNTIME_CONF"
CONVOLUTION_ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Environment variables for MindSpore's convolutions on CPU."""
_M_ARENA_MAX = -8
"""Option of glibc's `mallopt`: number of heaps."""
_PYTHON_RANGE = ((3, 10), (3, 12))


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings for which a process is prepared."""

    device: str = "auto"
    threads: int = 1
    convolutions: bool = False
    short_graphs: bool = False

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise SetupError(f"device must be one of {', '.join(DEVICES)}; got {self.device!r}")

    def differences(self, other: Settings) -> list[str]:
        """The differences from `other`, except for the device, in words."""
        found = []
        if self.threads != other.threads:
            found.append(f"{self.threads} of MindSpore's kernel threads instead of {other.threads}")
        if self.convolutions != other.convolutions:
            found.append(f"networks {'with' if self.convolutions else 'without'} MindSpore's convolutions")
        if self.short_graphs != other.short_graphs:
            found.append(f"{'short' if self.short_graphs else 'long'} updates")
        return found


@dataclasses.dataclass
class _State:
    module: types.ModuleType | None = None
    prepared: types.ModuleType | None = None
    """The module, too, once it is prepared."""
    settings: Settings = dataclasses.field(default_factory=Settings)
    resolved: str = ""
    talks: bool = False
    """Whether MindSpore logs warnings that the user did not ask for."""
    forked: bool = False
    """Whether this process was forked from one in which MindSpore was prepared, whose threads it lacks."""


_state = _State()
_turn = threading.RLock()
_PATIENCE = 5.0
"""Seconds for which a thread waits for its turn: another one may be building a policy."""


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """Marks a block that builds policies or trains: one thread of a process can do that at a time."""
    if not _turn.acquire(timeout=_PATIENCE):
        raise SetupError(
            "another thread of this process builds a policy or trains, and MindSpore serves one thread at a time: call "
            "one after the other, or train in separate processes"
        )
    try:
        yield
    finally:
        _turn.release()


def take_turn() -> bool:
    """Lets no other thread build or train from now on; returns whether none does."""
    return _turn.acquire(blocking=False)


def _forked() -> None:
    if _state.prepared is not None:
        _state.forked, _state.module, _state.prepared = True, None, None


os.register_at_fork(after_in_child=_forked)


def prepare(settings: Settings) -> None:
    """Loads MindSpore and prepares it for `settings`; a process that has been prepared is not changed. If `settings`
    differ from the settings of that preparation, the log warns about it."""
    if _state.prepared is None:
        with computing():
            if _state.prepared is None:
                module = _import()
                _apply(settings, module)
                _state.prepared, _state.settings = module, settings
                return
    if settings.device not in ("auto", _state.resolved):
        raise SetupError(
            f"MindSpore already runs on {_state.resolved} in this process and cannot move to {settings.device}: "
            "set `device` before the first policy is built, or start a new process"
        )
    if _state.resolved == "CPU" and (differences := _state.settings.differences(settings)):
        _warn_once(
            f"MindSpore was prepared in this process for {', '.join(differences)}, which does not fit this policy: its "
            "speed and last bits may differ from those in a separate process"
        )


@functools.cache
def _warn_once(message: str) -> None:
    console_logger().warning(message)


def environment() -> dict[str, str]:
    """The environment variables and their values that are set before MindSpore loads unless the user has set them."""
    return {
        "MS_DEV_HOST_BLOCKING_RUN": "1",
        _CONF: "new_pipeline:false",
        # Its errors are exceptions, too.
        "GLOG_v": "4",
        "MS_OM_PATH": os.environ.get("MS_OM_PATH") or str(cache_dir()),
    }


def check_versions() -> None:
    """Raises SetupError, with the one-line fix, if Python, NumPy or the MindSpore wheel do not fit."""
    if not _PYTHON_RANGE[0] <= sys.version_info[:2] <= _PYTHON_RANGE[1]:
        raise SetupError(
            f"MindSpore 2.10 has wheels for Python 3.10 to 3.12; this is {sys.version_info[0]}.{sys.version_info[1]}: "
            "make a virtual environment with one of them"
        )
    if int(np.__version__.split(".")[0]) >= 2:
        raise SetupError(
            f"MindSpore 2.10 fails at the first operator with NumPy {np.__version__}: pip install 'numpy>=1.26,<2'"
        )
    if importlib.util.find_spec("mindspore") is None:
        raise SetupError("MindSpore is not installed: pip install 'mindspore==2.10.0'")
    if os.environ.get("MS_COMPILER_CACHE_ENABLE") == "1":
        raise SetupError(
            "MS_COMPILER_CACHE_ENABLE=1 makes MindSpore return results of other functions silently: "
            "unset MS_COMPILER_CACHE_ENABLE"
        )


def load() -> types.ModuleType:
    """The `mindspore` module, ready to compute: prepared for the default `Settings` unless it was prepared before;
    SetupError: see `prepare`."""
    # A fast path, since every call of a graph gets here.
    if _state.prepared is not None:
        return _state.prepared
    prepare(Settings())
    return _import()


def _import() -> types.ModuleType:
    """Imports MindSpore on the first call, without deciding anything that `Settings` cover."""
    if _state.module is not None:
        return _state.module
    if _state.forked:
        raise SetupError(
            "this process was forked after MindSpore had begun to compute, and would wait for threads that it lacks: "
            "start it with multiprocessing.get_context('spawn'), or fork before the first policy is built"
        )
    check_versions()
    # MindSpore reads its log level when it loads: if the user imported it before, it warns about the settings below.
    _state.talks = "mindspore" in sys.modules and "GLOG_v" not in os.environ
    ours = _CONF not in os.environ
    _set_environment(environment())
    _use_one_heap()
    with warnings.catch_warnings(), silent(1), _uncollected():
        warnings.simplefilter("ignore")
        try:
            _state.module = importlib.import_module("mindspore")
        except ImportError as error:
            raise SetupError(f"MindSpore cannot be imported ({error}): pip install 'mindspore==2.10.0'") from error
    if ours:
        # Registered after MindSpore's own functions, and so called before them.
        atexit.register(_print_no_conf)
    return _state.module


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Looks for no garbage meanwhile; what is made counts as old afterwards, as if it had been looked through."""
    collects = gc.isenabled() and not gc.get_freeze_count()
    if collects:
        gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def _print_no_conf() -> None:
    """A process that loads MindSpore and computes nothing would print the runtime's settings when it ends."""
    if _state.prepared is None:
        os.environ.pop(_CONF, None)


def _use_one_heap() -> None:
    """Lets all threads take memory from one heap of the C library, if that is glibc. MindSpore compiles in many
    short-lived threads. If each had a heap, the memory that a compilation keeps would be scattered over all heaps, and
    they would grow with every further compilation."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and "MALLOC_ARENA_MAX" not in os.environ:
        set_option(_M_ARENA_MAX, 1)


def _apply(settings: Settings, module: types.ModuleType) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")
    device = _resolve_device(settings.device, module)
    if device != "CPU":
        way_out = "; device=CPU is tested" if settings.device == "auto" else ""
        _warn_once(f"minding has not been run on {device}: `minding docs devices` says what to expect{way_out}")
    with warnings.catch_warnings(), silent(1, 2) if _state.talks else silent(1):
        warnings.simplefilter("ignore")
        try:
            module.set_device(device)
            if device == "CPU":
                _prepare_cpu(settings, module)
            else:
                run_small_graph(module)
        except RuntimeError as error:
            raise SetupError(
                f"MindSpore cannot be prepared any more ({str(error).partition(chr(10))[0]}): build the policy before "
                "anything else computes with MindSpore in this process"
            ) from error
    _state.resolved = device


def _set_environment(variables: dict[str, str]) -> None:
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def _prepare_cpu(settings: Settings, module: types.ModuleType) -> None:
    use_signal_stack()
    if settings.convolutions:
        # oneDNN reads this variable when it computes for the first time.
        _set_environment(CONVOLUTION_ENVIRONMENT)
    module.device_context.cpu.op_tuning.threads_num(settings.threads)
    if settings.threads == 1:
        module.runtime.dispatch_threads_num(1 if settings.short_graphs else _DISPATCH_THREADS)
    run_small_graph(module)
    if settings.threads > 1:
        module.runtime.dispatch_threads_num(_DISPATCH_THREADS)


@floats.flush_denormals
def run_small_graph(module: types.ModuleType) -> None:
    """Runs a throwaway graph: the first one prints the runtime's settings, and creates the threads that compute.
    Threads inherit the floating-point mode of the thread that creates them."""
    module.jit(_sum_of_squares)(module.Tensor(np.ones(1, np.float32))).asnumpy()


@contextlib.contextmanager
def silent(*descriptors: int) -> Iterator[None]:
    """Drops output to standard output (1) or error (2), also that of C++ code, unlike `contextlib.redirect_stdout`."""
    libc = ctypes.CDLL(None)

    def flush() -> None:
        libc.fflush(None)
        for stream in (sys.stdout, sys.stderr):
            # An environment may have closed it, or set it to None.
            with contextlib.suppress(AttributeError, ValueError):
                stream.flush()

    flush()
    kept = {number: os.dup(number) for number in descriptors}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in descriptors:
            os.dup2(nowhere, number)
        yield
    finally:
        flush()
        for number, original in kept.items():
            os.dup2(original, number)
            os.close(original)
        os.close(nowhere)


def _resolve_device(device: str, module: types.ModuleType) -> str:
    if device == "CPU":
        return "CPU"
    wanted = "Ascend" if device == "auto" else device
    if _device_present(module, wanted):
        return wanted
    if device == "auto":
        return "CPU"
    raise _absent(wanted)


def check_device(device: str) -> None:
    """Refuses a device that this machine cannot have, as far as that is known without MindSpore."""
    if device in _DEVICE_FILES and not _has_driver(device):
        raise _absent(device)


def _absent(device: str) -> SetupError:
    return SetupError(
        f"device={device!r} was asked for, but there is none here: install its driver, or set device=auto"
    )


def _has_driver(device: str) -> bool:
    return any(Path("/dev").glob(_DEVICE_FILES[device]))


def _device_present(module: types.ModuleType, name: str) -> bool:
    # Asking MindSpore for an absent Ascend prints a loader message from C++.
    return _has_driver(name) and bool(module.hal.is_available(name))


def device() -> str:
    """The device in use: 'CPU', 'Ascend' or 'GPU'. Loads MindSpore if needed."""
    load()
    return _state.resolved


def settings() -> Settings:
    """The settings for which this process was prepared. Prepares it for the defaults if needed."""
    load()
    return _state.settings


def is_loaded() -> bool:
    """Whether MindSpore was loaded in this process."""
    return _state.module is not None


def to_device(array: Array) -> Any:
    """A Tensor of `array`. On CPU it shares memory with it, so in-place writes to `array` reach compiled graphs. A 0-d
    array becomes a Tensor of shape ``(1,)``. A Python number passed to a graph would become a constant of it."""
    module = load()
    if _state.resolved == "CPU":
        return module.from_numpy(np.ascontiguousarray(array))
    return module.Tensor(array)


def assign(parameter: Any, value: Array) -> None:
    """Writes a value into a Parameter in place; values from MindSpore's own loaders do not reach a graph that
    has run."""
    if tuple(parameter.shape) != tuple(value.shape):
        raise ShapeError(
            f"parameter {parameter.name}: expected shape {tuple(parameter.shape)}, got {tuple(value.shape)}"
        )
    if device() == "CPU":
        parameter.asnumpy()[...] = value
    else:
        parameter.copy_(load().Tensor(value))


def _sum_of_squares(x: Any) -> Any:
    return (x * x).sum()


_SUBMODULES = {"nn": "nn", "ops": "ops", "functional": "ops.functional"}


def __getattr__(name: str) -> Any:
    if name == "ms":
        return _import()
    if name in _SUBMODULES:
        return importlib.import_module(f"{_import().__name__}.{_SUBMODULES[name]}")
    raise AttributeError(f"module 'minding.engine.process.runtime' has no attribute {name!r}")


@functools.cache
def cache_dir() -> Path:
    """Creates and returns the folder for compiler dumps: ``$XDG_CACHE_HOME/minding`` or ``~/.cache/minding``. If that
    cannot be created or written (a user without a home), it is a temporary folder that is removed with this process,
    and a warning says so."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification wants it, an empty or relative path is ignored. Without a home, "~" stays as it is.
    base = Path(given if os.path.isabs(given) else os.path.expanduser("~/.cache"))
    reason = "this user has no home folder"
    if base.is_absolute():
        try:
            (base / "minding").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=base / "minding"):
                return base / "minding"
        except OSError as error:
            reason = f"{base / 'minding'} cannot be written: {error.strerror}"
    folder = tempfile.mkdtemp(prefix="minding-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    console_logger().warning(
        "no cache folder (%s): compiler dumps of this process go to %s; set XDG_CACHE_HOME to a writable folder",
        reason,
        folder,
    )
    return Path(folder)


@contextlib.contextmanager
def seeded(seed: int, name: str) -> Iterator[None]:
    """Seeds the global random streams from which cells draw initial parameters by default; restores them afterwards.
    These are MindSpore's seed (for initializers and operators such as dropout), NumPy's global stream, and Python's.
    The same seed and name give the same cells in every process."""
    load()
    # `from mindspore.common import seed` would import a function of that name.
    of_mindspore: Any = importlib.import_module("mindspore.common.seed")
    of_datasets: Any = importlib.import_module("mindspore.dataset").config

    numpys, pythons = np.random.get_state(), random.getstate()
    mindspores, datasets = of_mindspore.get_seed(), of_datasets.get_seed()
    given = SeedStreams(seed).integers(f"initial.{name}", 1)[0]
    try:
        of_mindspore.set_seed(given)
        random.seed(given)
        yield
    finally:
        of_datasets.set_seed(datasets)
        # MindSpore's own function does not accept None, the value at the start of a process.
        of_mindspore._GLOBAL_SEED = mindspores
        random.setstate(pythons)
        np.random.set_state(numpys)
