"""Functions that numba compiles, and that run unchanged where little is to be done.

A *kernel* is a function in a restricted subset of Python: numbers, loops, and vectors that can be
indexed. It makes no arrays. Floating point follows IEEE 754, without ``fastmath``, so that results
are the same to the last bit whichever way it runs::

    @kernel
    def double(values: Floats) -> None: ...

    run(len(values), double, values)

A small workflow never imports numba. Compiling takes some 20 s, once: who may write the package
keeps the machine code beside it, for all its users; everybody else below
``${XDG_CACHE_HOME:-~/.cache}/adon/kernels``, beginning with a copy of what is beside the package.
Both under a name made from the source of all modules of this folder, because numba itself would not
see that a kernel which another one calls has changed. ``python -m site_selector.warm`` compiles all
of them beforehand. Where nothing can be written, each process compiles for itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.util
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeVar, cast

import numpy as np

from network_provisioner.base import account

P = ParamSpec("P")
R = TypeVar("R")

#: Steps (jobs, and files or sites looked at for each) that run unchanged before machine code is
#: loaded, about a second's worth; and where there is none yet, half a minute's.
WARM_STEPS: Final = 300_000
COLD_STEPS: Final = 9_000_000

_HERE = Path(__file__).parent
_SHARED = _HERE / "__pycache__" / "kernels"


class _State:
    """What this process has done so far. ``running``: whether compiled kernels are in use;
    ``cold_steps``: steps before this process compiles what is not compiled yet."""

    def __init__(self) -> None:
        self.steps = 0
        self.running = False
        self.cold_steps: float = COLD_STEPS
        self.kernels: set[Callable[..., Any]] = set()
        self.twins: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.called: set[Callable[..., Any]] = set()


_state = _State()


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function as a kernel. It stays what it is."""
    _state.kernels.add(function)
    return function


def run(steps: int, function: Callable[..., R], *arguments: Any) -> R:
    """Run a kernel that does about ``steps`` steps. Vectors are contiguous numpy arrays, also
    inside named tuples, and are changed in place."""
    if not _worthwhile(steps):
        return function(*map(_plain, arguments))
    twin = _twin(function)
    if function in _state.called:
        return cast(R, twin(*arguments))
    with _alone(cache_directory()):  # the first call compiles, or loads what others compiled
        result = cast(R, twin(*arguments))
    _state.called.add(function)
    return result


def compile_from_now_on() -> None:
    """Run all kernels compiled, however little there is to be done."""
    _state.running = True


@contextmanager
def without_compiling() -> Iterator[None]:
    """What is not compiled yet runs unchanged meanwhile, however much there is to be done:
    for an answer that cannot wait."""
    _state.cold_steps = math.inf
    try:
        yield
    finally:
        _state.cold_steps = COLD_STEPS


def is_warm() -> bool:
    """Whether machine code of all kernels of the modules that were imported has been kept, as their
    source is now."""
    return all(map(_has_machine_code, _state.kernels))


def _has_machine_code(function: Callable[..., Any]) -> bool:
    own = cache_directory()
    folder = own if own.exists() else _SHARED / own.name
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-*.nbi"
    return any(folder.glob(f"*/{name}"))


@cache
def cache_directory() -> Path:
    """Where this process keeps machine code: beside the package where it may write there, else in
    the user's cache."""
    key = _key(_HERE)
    there = next(folder for folder in (_SHARED, *_SHARED.parents) if os.access(folder, os.F_OK))
    if os.access(there, os.W_OK | os.X_OK):
        return _SHARED / key
    cache = Path(os.environ.get("XDG_CACHE_HOME") or account.home() / ".cache")
    return cache / "adon" / "kernels" / key


def can_keep() -> bool:
    """Whether what this process compiles serves the next one."""
    return _is_writable(cache_directory())


@cache
def _key(package: Path) -> str:
    """A name made from the source of a directory's kernels and from what compiles and runs them. As
    it was when first asked for: that is the source which this process runs."""
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted(package.glob("*.py"))):
        digest.update(str(path).encode() + path.read_bytes())
    spec = importlib.util.find_spec("numba")
    origin = Path(spec.origin) if spec is not None and spec.origin is not None else None
    # The version can be told without importing numba only by when it was installed.
    installed = origin.stat().st_mtime_ns if origin is not None else 0
    machine = (platform.machine(), _processor())
    digest.update(repr((sys.version, *machine, str(origin), installed)).encode())
    return digest.hexdigest()[:16]


def _processor(file: Path = Path("/proc/cpuinfo")) -> str:
    """Its model: code made for one may not be for another, which has the same disk. "" if the
    kernel does not say."""
    with suppress(OSError), file.open(errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part", "cpu"):
                return value.strip()
    return ""


def _worthwhile(steps: int) -> bool:
    """Whether to run compiled from now on, when about ``steps`` more steps are to be done."""
    if not _state.running:
        _state.steps += steps
        _state.running = _state.steps >= (WARM_STEPS if _is_warm() else _state.cold_steps)
    return _state.running


@cache
def _is_warm() -> bool:
    """Looked at once."""
    return is_warm()


def _plain(value: Any) -> Any:
    """Vectors as what plain Python reads and writes fastest, over the same memory."""
    if isinstance(value, np.ndarray):
        return value.data
    if isinstance(value, tuple):
        return type(value)(*map(_plain, value))
    return value


def _twin(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled copy of the function that calls compiled kernels where it names kernels."""
    if function in _state.twins:
        return _state.twins[function]
    plain = cast(FunctionType, function)
    space: dict[str, Any] = {"__name__": plain.__module__, "__builtins__": __builtins__}
    for name in plain.__code__.co_names:
        if name in plain.__globals__:
            value = plain.__globals__[name]
            is_kernel = isinstance(value, FunctionType) and value in _state.kernels
            space[name] = _twin(value) if is_kernel else value
    copy = FunctionType(plain.__code__, space, plain.__name__, plain.__defaults__)
    copy.__module__, copy.__qualname__ = plain.__module__, plain.__qualname__
    made = _state.twins[function] = _compile(copy, cache_directory())
    return made


def _compile(function: FunctionType, folder: Path) -> Callable[..., Any]:
    numba = importlib.import_module("numba")
    before = numba.config.CACHE_DIR  # a global setting
    writable = _is_writable(folder)
    numba.config.CACHE_DIR = str(folder) if writable else before
    try:
        # Kernels make no arrays, so there is nothing to count references for. Counting them takes
        # three quarters of the time; the setting is numba's own but not documented.
        return cast(Callable[..., Any], numba.njit(cache=writable, _nrt=False)(function))
    except KeyError:  # a numba without it
        return cast(Callable[..., Any], numba.njit(cache=writable)(function))
    finally:
        numba.config.CACHE_DIR = before


@cache
def _is_writable(folder: Path) -> bool:
    """Whether machine code can be kept there; what is beside the package is there then, too."""
    shared = _SHARED / folder.name
    try:
        if folder == shared:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            _copy(shared, folder)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(100_000))  # not on a full disk
    except OSError:
        return False
    return True


def _copy(shared: Path, own: Path) -> None:
    """numba reads only where it may write. Whole or not at all, and only what is not there."""
    if own.exists() or not os.access(shared, os.R_OK | os.X_OK):
        return
    own.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=own.parent) as name, suppress(OSError, shutil.Error):
        copy = Path(name) / "copy"
        shutil.copytree(shared, copy)
        copy.chmod(0o700)
        copy.rename(own)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process compiles at a time: what it compiled serves those that wait."""
    if not _is_writable(folder):
        yield
        return
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
