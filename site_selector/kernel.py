"""Functions that run as they stand, or compiled by numba: the same source, the same results.

A *kernel* is a function in a restricted subset of Python: numbers, loops, and things that can be
indexed (lists when it is interpreted, numpy arrays when it is compiled). It makes no arrays.
Floating point follows IEEE 754 in both, without ``fastmath``, so that results are identical to the
last bit::

    @kernel
    def double(values: Floats) -> None: ...

    fast = worthwhile(len(values))
    run = compiled(double) if fast else double

:func:`worthwhile` decides: small workflows never import numba.

Compiling takes some seconds, once: numba keeps the machine code below
``${XDG_CACHE_HOME:-~/.cache}/adon/kernels``, under a name made from the source of all kernels
(``kernel_*.py``), because numba itself would not see that a kernel which another one calls has
changed. ``python -m site_selector.warm`` compiles all of them beforehand. Where that directory
cannot be written, each process compiles for itself; where numba cannot be imported, everything is
interpreted.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

#: Steps (jobs, and files or sites looked at for each) that are interpreted before machine code is
#: loaded, about a second's worth; and where there is none yet, half a minute's.
WARM_STEPS: Final = 400_000
COLD_STEPS: Final = 12_000_000

_HERE = Path(__file__).parent


class _State:
    """What this process knows and has done so far."""

    def __init__(self) -> None:
        self.steps = 0
        self.running = False  # whether compiled kernels are in use
        self.forced: bool | None = None
        self.warm: bool | None = None
        self.caching = True
        self.numba: ModuleType | None = None
        self.missing = False
        self.kernels: set[Callable[..., Any]] = set()
        self.twins: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.guarded: dict[Callable[..., Any], Callable[..., Any]] = {}


_state = _State()


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function as a kernel. It stays what it is; :func:`compiled` finds its twin."""
    _state.kernels.add(function)
    return function


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The compiled twin of a kernel, which takes numpy arrays. Machine code is made or loaded when
    it is first called.

    Raises ImportError where numba cannot be imported.
    """
    found = _state.guarded.get(function)
    if found is None:
        found = _state.guarded[function] = _guarded(function)
    return cast(Callable[P, R], found)


def worthwhile(steps: int) -> bool:
    """Whether to run compiled from now on, when about ``steps`` more steps are to be done.

    False for as long as little was done, and where numba is missing; True ever after it was True.
    """
    if _state.forced is not None:
        return _state.forced and _load()
    if _state.running:
        return True
    _state.steps += steps
    if _state.missing or _state.steps < WARM_STEPS:
        return False
    if _state.steps < COLD_STEPS and not _is_warm():
        return False
    _state.running = _load()
    return _state.running


@contextmanager
def forced(run_compiled: bool) -> Iterator[None]:
    """For as long as the block runs, :func:`worthwhile` says so (if numba can be imported)."""
    before, _state.forced = _state.forced, run_compiled
    try:
        yield
    finally:
        _state.forced = before


def available() -> bool:
    """Whether numba is there. Does not import it, so what is broken is seen when it is used."""
    if _state.numba is None and not _state.missing:
        _state.missing = importlib.util.find_spec("numba") is None
    return not _state.missing


def _load() -> bool:
    """Import numba; whether that worked."""
    if available() and _state.numba is None:
        try:
            _state.numba = importlib.import_module("numba")
        except (ImportError, OSError):  # its library does not load here
            _state.missing = True
    return not _state.missing


def has_machine_code(function: Callable[..., Any]) -> bool:
    """Whether machine code of a kernel, as its source is now, has been kept."""
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-*.nbi"
    return any(_cache_of(function).glob(f"*/{name}"))


def kernels() -> list[Callable[..., Any]]:
    """All kernels of the modules that were imported, by name."""
    return sorted(_state.kernels, key=lambda k: (k.__module__, k.__qualname__))


@cache
def cache_directory(package: Path = _HERE) -> Path:
    """Where machine code of the kernels in a directory is kept.

    Its name is made from their source and that of this package, which they may call, and from what
    compiles them. As it was when first asked for: that is the source which this process runs.
    """
    found = hashlib.sha256()
    sources = {path for folder in (_HERE, package) for path in folder.glob("kernel_*.py")}
    for path in (Path(__file__), *sorted(sources)):
        found.update(str(path).encode() + path.read_bytes())
    spec = importlib.util.find_spec("numba")
    origin = Path(spec.origin) if spec is not None and spec.origin is not None else None
    # The version can be told without importing numba only by when it was installed.
    installed = origin.stat().st_mtime_ns if origin is not None else 0
    found.update(repr((sys.version, platform.machine(), str(origin), installed)).encode())
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "adon" / "kernels" / found.hexdigest()[:16]


def _cache_of(function: Callable[..., Any]) -> Path:
    return cache_directory(Path(cast(FunctionType, function).__code__.co_filename).parent)


def _is_warm() -> bool:
    """Looked at once: any machine code stands for all, what is missing takes a few seconds."""
    if _state.warm is None:
        _state.warm = any(cache_directory().glob("*/*.nbi"))
    return _state.warm


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin, which is made anew without a cache where the cache cannot be read or written."""

    def run(*arguments: Any) -> Any:
        try:
            return _twin(function)(*arguments)
        except (OSError, EOFError, pickle.UnpicklingError):  # before any of it has run
            if not _state.caching:
                raise
            _state.caching = False
            _state.twins.clear()
            return _twin(function)(*arguments)

    return run


def _twin(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled copy of the function that calls compiled kernels where it names kernels."""
    if function in _state.twins:
        return _state.twins[function]
    if not _load() or _state.numba is None:
        raise ImportError("numba cannot be imported")
    plain = cast(FunctionType, function)
    space: dict[str, Any] = {"__name__": plain.__module__, "__builtins__": __builtins__}
    for name in plain.__code__.co_names:
        if name in plain.__globals__:
            value = plain.__globals__[name]
            is_kernel = isinstance(value, FunctionType) and value in _state.kernels
            space[name] = _twin(value) if is_kernel else value
    copy = FunctionType(plain.__code__, space, plain.__name__, plain.__defaults__)
    copy.__module__, copy.__qualname__ = plain.__module__, plain.__qualname__
    with _cache_in(_state.numba, _cache_of(function)) as writable:
        made = _state.twins[function] = _compile(_state.numba, copy, writable)
    return made


def _compile(numba: ModuleType, function: FunctionType, cache: bool) -> Callable[..., Any]:
    # Kernels make no arrays, so there is nothing to count references for. Counting them takes
    # three quarters of the time; the setting is numba's own but not documented.
    try:
        return cast(Callable[..., Any], numba.njit(cache=cache, _nrt=False)(function))
    except KeyError:  # a numba without it
        return cast(Callable[..., Any], numba.njit(cache=cache)(function))


@contextmanager
def _cache_in(numba: ModuleType, folder: Path) -> Iterator[bool]:
    """Whether there is a cache; numba's for as long as the block runs, being a global setting."""
    writable = _state.caching
    if writable:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            writable = os.access(folder, os.W_OK)
        except OSError:
            writable = False
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder) if writable else before
    try:
        yield writable
    finally:
        numba.config.CACHE_DIR = before
