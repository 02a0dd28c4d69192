"""The cluster of a run: a new one on this machine, or one that the user started."""

import contextlib
import importlib.metadata
import ipaddress
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minding.engine.errors import ConfigError, LaneError, MissingExtraError, installing
from minding.engine.lanes.options import LOCAL
from minding.engine.lanes.ray import reaper
from minding.engine.lanes.ray.guard import raylet_of
from minding.engine.process.alive import start_ticks
from minding.engine.process.packages import import_installed
from minding.engine.process.signals import note_sender

_ON_ALL_ADDRESSES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's environment variable that decides whether it listens on all addresses, so that other machines may join."""
_MODE, _TOKEN, _TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_TOKENS = "token"
"""The mode in which Ray asks for tokens."""
_OLDEST = (2, 60)
_REACHED = 5.0  # s
_PREFACE, _FRAME, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", struct.Struct(">BHBBI"), 4
"""Preface of an HTTP/2 connection; head of its frames: length in 3 bytes, type, flags, stream; type of settings."""
_REAPED = 5.0  # s
_QUIET = {"log_to_driver": False, "configure_logging": False}


def check_ray(address: str, insecure: bool = False) -> None:
    """Refuses a cluster that this machine cannot use, without importing Ray."""
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError("ray", "ray", "lanes.transport=ray") from None
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise ConfigError(f"lanes.transport=ray: Ray {version} is too old: {installing('ray')}")
    if address == LOCAL:
        return
    mode = os.environ.get(_MODE, _TOKENS)
    if not insecure and mode.lower() != _TOKENS:
        raise ConfigError(
            f"lanes.address={address!r}: {_MODE}={mode} switches tokens off, and anyone who can reach a cluster "
            f"without one can run code on its machines: unset {_MODE}, or accept a cluster without a token with "
            "--insecure-cluster"
        )
    if not insecure and not has_token():
        raise ConfigError(
            f"lanes.address={address!r}: no token is set, and anyone who can reach a cluster without one can run code "
            f"on its machines: set {_TOKEN_PATH} to a file with the token that the cluster was started with "
            f"({_MODE}=token ray start ...), or accept a cluster without one with --insecure-cluster"
        )
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise ConfigError(
            f"lanes.address={address!r}: expected HOST:PORT of a Ray cluster, with a port from 1 to 65535, or local"
        )
    reason: str | None
    try:
        reason = _other_listener(host, int(port))
    except OSError as error:
        reason = str(error)
    if reason is not None:
        raise ConfigError(
            f"lanes.address={address!r}: no Ray cluster answers there ({reason}): expected HOST:PORT of one that was "
            "started with `ray start --head --port=PORT`, or local"
        )


def _other_listener(host: str, port: int) -> str | None:
    """Finds out whether the program that listens there speaks gRPC, as Ray does; None if it does. Ray itself would wait
    for minutes, and cannot be interrupted meanwhile. A server of gRPC answers the preface of HTTP/2 (RFC 9113, section
    3.4) with a frame of settings."""
    with socket.create_connection((host, port), timeout=_REACHED) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return None
        connection.sendall(_PREFACE + _FRAME.pack(0, 0, _SETTINGS, 0, 0))
        answer = b""
        with contextlib.suppress(TimeoutError):
            while len(answer) < _FRAME.size and (part := connection.recv(_FRAME.size - len(answer))):
                answer += part
    if len(answer) == _FRAME.size and _FRAME.unpack(answer)[2] == _SETTINGS:
        return None
    return "the program that listens there does not answer in HTTP/2: it is not Ray, or needs RAY_USE_TLS=1"


def has_token() -> bool:
    """Whether Ray will find a token in the places where it looks for one."""
    if os.environ.get(_MODE, _TOKENS).lower() != _TOKENS:
        return False
    if os.environ.get(_TOKEN):
        return True
    file = Path(os.environ.get(_TOKEN_PATH) or Path.home() / ".ray" / "auth_token")
    try:
        return bool(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


class JoinedCluster:
    """A cluster that the user started."""

    def __init__(self, address: str, insecure: bool) -> None:
        self._address = address
        self._mode = {_MODE: "disabled" if insecure and not has_token() else "token"}

    def start(self) -> Any:
        """Joins the cluster; returns the module `ray`."""
        check_ray(self._address, self._mode[_MODE] == "disabled")
        self._environment = _environment(self._mode)
        self._environment.__enter__()
        try:
            ray = _init({"address": self._address})
            self._reaper = _start_reaper(None)
            _tell_raylet(self._reaper, ray)
            return ray
        except BaseException:
            self._environment.__exit__(None, None, None)
            raise

    def watch(self, pid: int) -> None:
        """Does nothing: processes of the cluster end with it, not with the run."""

    def lost(self) -> None:
        """Keeps the reaper from saying again what the run has said."""
        _tell(self._reaper, "bye")

    def end(self) -> None:
        _end_reaper(self._reaper)
        _ray().shutdown()
        self._environment.__exit__(None, None, None)


class LocalCluster:
    """A cluster on this machine that ends with this process, whatever ends the process.

    It listens on the loopback address only, which is checked once it runs, and has neither dashboard nor client port.
    A connection needs a token, which is in a file that only this user can read. Token, logs and sockets are in a folder
    that is removed at the end.
    """

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()

    def start(self) -> Any:
        """Starts the cluster; returns the module `ray`."""
        check_ray(LOCAL)
        _stay_within_this_machine()
        with contextlib.ExitStack() as held:
            # A short folder, since the paths of sockets have a limit.
            folder = tempfile.mkdtemp(prefix="minding-ray-", dir=os.environ.get("RAY_TMPDIR") or "/tmp")
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            self._reaper = _start_reaper(folder)
            held.callback(_end_reaper, self._reaper)
            token = Path(folder) / "token"
            with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
            held.enter_context(_environment({_MODE: "token", _TOKEN_PATH: str(token), _TOKEN: None}))
            ray = _ray()
            before, listened = set(_descendants()), set(_listeners([os.getpid()]))
            held.callback(ray.shutdown)
            # A folder within it, because Ray makes its own folder writable for everybody.
            own = str(Path(folder) / "ray")
            _init({"address": LOCAL, "include_dashboard": False, "_temp_dir": own})
            started = [pid for pid in _descendants() if pid not in before and pid != self._reaper.pid]
            for pid in started:
                self.watch(pid)
            _tell_raylet(self._reaper, ray)
            if os.environ[_ON_ALL_ADDRESSES] == "0":
                _check_listeners(set(_listeners([os.getpid(), *started])) - listened)
            self._closing = held.pop_all()
        return ray

    def watch(self, pid: int) -> None:
        """Has the reaper end a process of the cluster that outlives this process."""
        since = start_ticks(pid)
        if since is not None:
            _tell(self._reaper, f"process {pid} {since}")

    def lost(self) -> None:
        _tell(self._reaper, "bye")

    def end(self) -> None:
        self._closing.close()


def _init(arguments: dict[str, Any]) -> Any:
    ray = _ray()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**arguments, **_QUIET)
    except (RuntimeError, ConnectionError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"lanes.address={arguments['address']!r}: Ray does not let this process in ({reason}): the token has to be "
            "that of the cluster, and Ray and Python of its versions"
        ) from error
    finally:
        # Ray has replaced the handler by its own.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, handler)
            note_sender()
    return ray


@contextlib.contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Sets the environment variables from which Ray reads its tokens, even if Ray was imported before."""
    earlier = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(earlier)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    raylet = sys.modules.get("ray._raylet")
    if raylet is not None:
        # Ray read these variables at its import.
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _stay_within_this_machine() -> None:
    """Makes Ray listen on the loopback address only, instead of all addresses of the machine."""
    if _ON_ALL_ADDRESSES in os.environ:
        return
    if "ray" in sys.modules:
        raise ConfigError(
            f"lanes.address=local: Ray was imported before the run and would listen on all addresses of this machine: "
            f"set {_ON_ALL_ADDRESSES}=0 in the environment (or 1 if that is what you want)"
        )
    os.environ[_ON_ALL_ADDRESSES] = "0"


def _check_listeners(listeners: set[tuple[str, int]]) -> None:
    for address, port in sorted(listeners):
        found = ipaddress.ip_address(address)
        if not (getattr(found, "ipv4_mapped", None) or found).is_loopback:
            raise ConfigError(
                f"lanes.address=local: Ray listens on {address} port {port}, where other machines reach it: set "
                f"{_ON_ALL_ADDRESSES}=0 in the environment before Ray is imported (or 1 if that is what you want)"
            )


def _listeners(pids: list[int]) -> Iterator[tuple[str, int]]:
    """Address and port of all sockets on which these processes listen."""
    import psutil

    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            find = getattr(process, "net_connections", None) or process.connections
            for connection in find(kind="inet"):
                if connection.status == psutil.CONN_LISTEN:
                    yield connection.laddr.ip, connection.laddr.port


def _descendants() -> list[int]:
    import psutil

    return [process.pid for process in psutil.Process().children(recursive=True)]


def _start_reaper(folder: str | None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", reaper.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # A signal from the terminal that ends the run must not end it.
        start_new_session=True,
    )
    if folder is not None:
        _tell(process, f"folder {folder}")
    return process


def _end_reaper(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        process.stdin.write("bye\n")  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]
    try:
        process.wait(_REAPED)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tell_raylet(process: subprocess.Popen[str], ray: Any) -> None:
    pid = raylet_of(ray)
    since = start_ticks(pid)
    if since is not None:
        _tell(process, f"raylet {pid} {since}")


def _tell(process: subprocess.Popen[str], line: str) -> None:
    try:
        process.stdin.write(f"{line}\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    except OSError as error:
        raise LaneError(f"the process that cleans up a local cluster is gone ({error})") from None


def _ray() -> Any:
    # Ray installs psutil.
    for module in ("ray._raylet", "ray.exceptions"):
        import_installed(module)
    return import_installed("ray")
