"""Make unpacked Debian packages run where they lie.

Packages of the machine's own release get wrapper scripts that name their libraries. Packages of
another release need another C library, which a wrapper cannot give to the programs that these
start in turn: they are patched to use their own loader and libraries.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from network_provisioner.base.errors import MissingError

# Debian keeps ovs-vswitchd, and the programs of a JDK, of Maven and of a PostgreSQL server, beside
# their alternatives and links them, if at all, when the package is configured. Of two with one name
# the first is taken: Chromium's in usr/bin is a script that names its program by the whole path.
_BIN = (
    "usr/lib/chromium",
    *("usr/bin", "usr/sbin", "bin", "sbin"),
    "usr/lib/openvswitch-switch",
    "usr/lib/jvm/*-openjdk-*/bin",
    "usr/lib/postgresql/*/bin",
    "usr/share/maven/bin",
)
_ELF = b"\x7fELF"
# Environment that programs read their data's place from: variable, path below the root.
_DATA = {
    "OVS_PKGDATADIR": "usr/share/openvswitch",
    "BCFTOOLS_PLUGINS": "usr/libexec/bcftools",
    "FONTCONFIG_FILE": "usr/share/fonts/fonts.conf",
}
# No font is found without such a file, and a machine need have none. It says which of our fonts
# stands for any other, as Debian's many files in /etc do.
_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">.</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias><family>serif</family><prefer><family>DejaVu Serif</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <match>
    <edit name="family" mode="append_last"><string>DejaVu Sans</string></edit>
  </match>
</fontconfig>
"""


def trim(root: Path) -> None:
    """Drop documents and start-up files, which nothing here reads; settings that a program reads
    beside itself, by a link into ``/etc``, are put there, and so is what finds fonts."""
    for link in [path for path in root.rglob("*") if path.is_symlink()]:
        target = str(link.readlink())
        own = root / target.lstrip("/")
        if target.startswith("/etc/") and own.is_file():
            link.unlink()
            shutil.copyfile(own, link)
    for part in ("doc", "man", "locale", "lintian", "bash-completion", "bug", "info"):
        shutil.rmtree(root / "usr/share" / part, ignore_errors=True)
    for part in ("etc", "var", "lib/systemd", "usr/lib/systemd", "usr/include", "usr/lib/python3"):
        shutil.rmtree(root / part, ignore_errors=True)
    if (root / "usr/share/fonts").is_dir():
        (root / _DATA["FONTCONFIG_FILE"]).write_text(_FONTS)


def library_dirs(root: Path) -> list[Path]:
    """Every directory of ``root`` that shared libraries lie in, the most used first."""
    # The library of PulseAudio, which Chromium cannot start without, finds its own by a whole path.
    parts = ("usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/pulseaudio")
    places = [d for part in parts for d in sorted(root.glob(part))]
    return [d for d in [*places, root / "usr/lib"] if any(d.glob("*.so*"))]


def programs(root: Path) -> list[Path]:
    """Every program of ``root``."""
    candidates = [f for part in _BIN for f in sorted(root.glob(f"{part}/*"))]
    usable = [f for f in candidates if os.access(f, os.X_OK) and f.is_file()]
    return list({f.name: f for f in reversed(usable)}.values())[::-1]


def _moved(paths: Sequence[Path], tree: Path, home: Path) -> str:
    return ":".join(str(home / path.relative_to(tree)) for path in paths)


def wrap(tree: Path, home: Path) -> None:
    """Write a wrapper for every program of ``tree``, which will be renamed to ``home``."""
    root = tree / "root"
    libraries = shlex.quote(_moved(library_dirs(root), tree, home))
    lines = ["#!/bin/sh", f"LD_LIBRARY_PATH={libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"]
    exports = ["LD_LIBRARY_PATH"]
    for name, part in _DATA.items():
        if (root / part).exists():
            lines.append(f"{name}=${{{name}:-{shlex.quote(str(home / 'root' / part))}}}")
            exports.append(name)
    lines.append(f"export {' '.join(exports)}")
    (tree / "wrap").mkdir()
    for program in programs(root):
        target = shlex.quote(str(home / program.relative_to(tree)))
        wrapper = tree / "wrap" / program.name
        wrapper.write_text("\n".join([*lines, f'exec {target} "$@"', ""]))
        wrapper.chmod(0o755)


def _is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == _ELF


def loader(root: Path) -> Path:
    """The dynamic loader below ``root``. Raises MissingError."""
    path = [p for d in library_dirs(root) for p in sorted(d.glob("ld-linux*.so.*"))]
    if not path:
        raise MissingError("libc6: found no ld-linux*.so.* in the unpacked packages")
    return path[0]


def patch(tree: Path, home: Path) -> None:
    """Patch every ELF program of ``tree``, which will be renamed to ``home``, to its libraries.

    :raises MissingError: when patchelf fails.
    """
    root = tree / "root"
    start = [str(loader(root)), "--library-path", ":".join(map(str, library_dirs(root)))]
    patchelf = [*start, str(root / "usr/bin/patchelf")]
    rpath = _moved(library_dirs(root), tree, home)
    interpreter = str(home / loader(root).relative_to(tree))
    files = [f for part in (*_BIN, "usr/libexec") for f in sorted((root / part).rglob("*"))]
    for file in files:
        if not _is_elf(file) or file.name == "patchelf":
            continue
        if runs([*patchelf, "--print-interpreter", str(file)], {}):  # else statically linked
            _patch(patchelf, "--set-interpreter", interpreter, "--set-rpath", rpath, str(file))
    (tree / "wrap").mkdir()
    for program in programs(root):
        (tree / "wrap" / program.name).symlink_to(Path("..") / program.relative_to(tree))


def _patch(patchelf: Sequence[str], *arguments: str) -> None:
    # --force-rpath: DT_RPATH holds for the libraries' own libraries too, DT_RUNPATH does not.
    done = subprocess.run(
        [*patchelf, "--force-rpath", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise MissingError(f"patchelf {arguments[-1]}: {done.stderr.strip()}")


def runs(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Does this command start and end well?"""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def check(tree: Path, command: Sequence[str], *, own_loader: bool) -> None:
    """Run one program of ``tree`` before it is renamed. Raises MissingError when it fails."""
    root = tree / "root"
    libraries = ":".join(map(str, library_dirs(root)))
    missing = [p for p in programs(root) if p.name == command[0]]
    if not missing:
        raise MissingError(f"{command[0]}: not found in the unpacked packages")
    real = [str(missing[0]), *command[1:]]
    if own_loader:
        works = runs([str(loader(root)), "--library-path", libraries, *real], {})
    else:
        works = runs(real, {"LD_LIBRARY_PATH": libraries})
    if not works:
        raise MissingError(f"{' '.join(command)}: does not run from the unpacked packages")
