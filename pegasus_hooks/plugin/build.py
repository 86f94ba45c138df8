"""Build the plug-in's jar: ``python -m pegasus_hooks.plugin.build [--out FILE]``.

The same sources and the same compiler give the same bytes: the jar's entries are sorted, stored
without compression, and bear one fixed date. It takes a JDK and nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from network_provisioner.base import account
from network_provisioner.base.errors import AdonError, MissingError
from pegasus_hooks.plugin import JAR_NAME

Progress = Callable[[str], None]
FindCompiler = Callable[[Progress], Path]

HERE = Path(__file__).resolve().parent
COMPILER = "javac"
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can hold
_MANIFEST = "Manifest-Version: 1.0\r\nCreated-By: ADON\r\n\r\n"
_FILE_MODE = 0o100644 << 16


def ensure_jar(*, progress: Progress, find_compiler: FindCompiler | None = None) -> Path:
    """The jar of the installed package, else the one built from the sources that are there, once
    for each state of them, in the user's cache.

    ``find_compiler`` is asked for a javac where none is on this machine. Raises MissingError if
    there is none in the end, or the cache cannot be written.
    """
    packaged = HERE / JAR_NAME
    if packaged.is_file():
        return packaged
    built = cache_root() / f"planner-plugin-{source_key()}" / JAR_NAME
    if not built.is_file():
        build_jar(built, progress=progress, find_compiler=find_compiler)
    return built


def build_jar(out: Path, *, progress: Progress, find_compiler: FindCompiler | None = None) -> Path:
    """Compile the sources into ``out``, whole or not at all; see :func:`ensure_jar`."""
    compiler = installed_compiler()
    if compiler is None:
        if find_compiler is None:
            raise MissingError(
                f"{COMPILER}: not on PATH nor in JAVA_HOME, expected a JDK of 8 or later"
            )
        compiler = find_compiler(progress)
    progress(f"planner plug-in: compiling with {compiler}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".planner-plugin-", dir=out.parent) as name:
            work = Path(name)
            _compile(compiler, _sources("signatures"), work / "signatures")
            _compile(compiler, _sources("java"), work / "classes", work / "signatures")
            whole = work / JAR_NAME
            _pack(work / "classes", whole)
            whole.replace(out)
    except OSError as error:
        raise MissingError(f"{error.filename or out}: {error.strerror or error}") from error
    return out


def installed_compiler() -> Path | None:
    """The javac of JAVA_HOME, else of PATH, None without one."""
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which(COMPILER, path=f"{home}/bin") if home else None
    compiler = compiler or shutil.which(COMPILER)
    return Path(compiler) if compiler else None


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/adon``, or ``~/.cache/adon``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else account.home() / ".cache") / "adon"


def source_key() -> str:
    """A short key that changes with whatever the jar is made from."""
    state = hashlib.sha256()
    for path in [Path(__file__), *_sources("signatures"), *_sources("java")]:
        state.update(f"{path.name}\0".encode())
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _sources(part: str) -> list[Path]:
    sources = sorted((HERE / part).rglob("*.java"))
    if not sources:
        raise MissingError(f"{HERE / part}: found no Java sources, expected those of the plug-in")
    return sources


def _compile(compiler: Path, sources: list[Path], into: Path, against: Path | None = None) -> None:
    into.mkdir()
    # Up to 8, javac knows no --release; from 9 on it is what keeps newer classes out.
    old = subprocess.run(
        [compiler, "-version"], capture_output=True, text=True, check=False, errors="replace"
    )
    is_8 = " 1.8" in old.stdout + old.stderr
    level = ["-source", "8", "-target", "8"] if is_8 else ["--release", "8"]
    # Line numbers for stack traces; no warning that 8 is old.
    command = [str(compiler), *level, "-g:source,lines", "-Xlint:-options", "-encoding", "UTF-8"]
    path = ["-cp", str(against)] if against else ["-cp", str(into)]
    done = subprocess.run(
        [*command, *path, "-d", str(into), *map(str, sources)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise MissingError(f"{compiler}: {lines[0] if lines else f'exit {done.returncode}'}")


def _pack(classes: Path, out: Path) -> None:
    entries = {"META-INF/MANIFEST.MF": _MANIFEST.encode()}
    for path in sorted(classes.rglob("*.class")):
        entries[path.relative_to(classes).as_posix()] = path.read_bytes()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as jar:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = _FILE_MODE
            entry.create_system = 3
            jar.writestr(entry, content)


def main() -> int:
    """Exit status 0, or 2 with one line where it cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m pegasus_hooks.plugin.build")
    parser.add_argument("--out", type=Path, help="output file (default: in the user's cache)")
    out = parser.parse_args().out

    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    try:
        print(build_jar(out, progress=progress) if out else ensure_jar(progress=progress))
    except AdonError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
