"""From parts and a place to the changes of files that install them, or take them out."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from network_provisioner.base.errors import InputError
from pegasus_hooks import hookscripts, properties
from pegasus_hooks.install import block, changes, ours
from pegasus_hooks.install.changes import Change
from pegasus_hooks.install.home import Place
from pegasus_hooks.install.parts import HOOKS, NAMES, SELECTOR, Part


def changes_to_install(
    place: Place,
    parts: Sequence[Part],
    others: Sequence[Place] = (),
    keep: Collection[str] = (),
    in_use: Collection[str] = (),
) -> list[Change]:
    """Programs first: settings that name them come when they are there. What was installed at
    ``others``, places that share their programs, is taken out; parts named in ``keep`` stay as they
    are everywhere, and of those ``in_use`` the programs.

    Raises InputError where a file cannot be read, is not ours, or has a setting of the user's own
    that ours would overrule.
    """
    for part in parts:
        _refuse_conflicts(place, part)
    jars = {name: content for part in parts for name, content in part.jars.items()}
    programs = {name: file for part in parts for name, file in part.programs.items()}
    return [
        *(ours.jar(place.jars / name, content) for name, content in jars.items()),
        *(ours.program(place.programs / name, file) for name, file in programs.items()),
        *(_with_block(place, file, parts, keep) for file in place.files),
        *(_without_block(file, keep) for file in _files(others) if file not in place.files),
        # What an earlier installation brought and this one does not, last: no setting names it.
        *_removals(place, {*keep, *in_use}, {*jars, *programs}),
    ]


def changes_to_undo(
    place: Place,
    others: Sequence[Place] = (),
    keep: Collection[str] = (),
    in_use: Collection[str] = (),
) -> list[Change]:
    """Settings first, then programs; of ``others`` that share them, too. Parts named in ``keep``
    stay, and of those ``in_use``, which workflows still need, the programs.

    Raises InputError.
    """
    files = _files((place, *others))
    return [
        *(_without_block(file, keep) for file in files),
        *_removals(place, {*keep, *in_use}),
    ]


def _files(places: Sequence[Place]) -> list[Path]:
    return list(dict.fromkeys(file for place in places for file in place.files))


def _removals(
    place: Place, keep: Collection[str], installed: Collection[str] = ()
) -> Iterator[Change]:
    if SELECTOR not in keep:
        for name in ours.JARS:
            if name not in installed:
                yield ours.jar(place.jars / name, None)
    if HOOKS not in keep:
        for name in ours.PROGRAMS:
            if name not in installed:
                yield ours.program(place.programs / name, None)


def _with_block(place: Place, file: Path, parts: Sequence[Part], keep: Collection[str]) -> Change:
    """The block of one of the place's files, with the parts that go there."""
    content = changes.read(file)
    said = block.sections(content, str(file))
    for part in parts:
        if _file_of(place, part) == file:
            said[part.name] = list(_lines(place, part))
        else:
            said.pop(part.name, None)
    lines = [
        line
        for name in NAMES
        if name in keep or any(part.name == name for part in parts)
        for line in said.get(name, ())
    ]
    if not lines:
        return Change(file, content, block.take_out(content, str(file)))
    after = block.put(content, lines, str(file), not file.parent.exists())
    return Change(file, content, after)


def _without_block(file: Path, keep: Collection[str]) -> Change:
    content = changes.read(file)
    said = block.sections(content, str(file))
    lines = [line for name in NAMES if name in keep for line in said.get(name, ())]
    if lines:
        return Change(file, content, block.put(content, lines, str(file)))
    return Change(file, content, block.take_out(content, str(file)))


def carry_out(place: Place, wanted: Sequence[Change]) -> None:
    """Make the changes, all or none, and remove folders made for what is no more.

    Raises InputError.
    """
    changes.remove_parts([change.path for change in wanted])
    changes.check_writable([change for change in wanted if change.needed])
    changes.apply(wanted)
    gone = [change for change in wanted if change.before is not None and change.after is None]
    folders = [
        change.path.parent
        for change in gone
        if block.find(change.before or b"", str(change.path)).folder
    ]
    # Ours also where a killed installation made it, and nothing in it.
    for folder in (*place.own, *folders):
        with contextlib.suppress(OSError):  # it is not there, or others use it
            folder.rmdir()


def undoing(wanted: Sequence[Change]) -> list[Change]:
    """The changes that bring back what ``wanted`` changed."""
    return [change.reverse() for change in reversed(wanted)]


def own_choice(path: Path, parts: Sequence[Part]) -> str | None:
    """Where a property file says otherwise than the parts, in one line; None where it does not."""
    try:
        for part in parts:
            _refuse_conflict(path, changes.read(path) or b"", part)
    except InputError as error:
        return str(error).partition(", which")[0]
    return None


def own_post(path: Path) -> str | None:
    """Where a property file has another POST than Pegasus's, in one line; None where it has not."""
    for number, key, value in _entries(path, changes.read(path) or b""):
        if key == hookscripts.POST_PROPERTY and value.strip() not in hookscripts.PEGASUS_POSTS:
            return f"{path}:{number}: found {key} = {value.strip()}"
    return None


def environment(place: Place, parts: Sequence[Part]) -> dict[str, str]:
    """The variables that a shell's start file gets; Pegasus reads ``_PEGASUS__A__B`` as
    ``pegasus.a.b``, and nothing else from variables."""
    parts = [part for part in parts if part.variables]
    found = {
        "_" + key.replace(".", "__").upper(): value
        for part in parts
        for key, value in part.settings.items()
    }
    jars = [str(place.jars / name) for part in parts for name in part.jars]
    return found | ({"CLASSPATH": ":".join(jars)} if jars else {})


def _file_of(place: Place, part: Part) -> Path:
    """Where its settings go."""
    if place.properties is not None and not part.variables:
        return place.properties
    return place.settings


def _lines(place: Place, part: Part) -> Iterator[str]:
    if not (place.shell and part.variables):
        yield from part.lines()
        return
    yield block.heading(part.name, part.what)
    for name, value in environment(place, [part]).items():
        for_shell = shlex.quote(value)
        if not for_shell.isascii() or "\n" in for_shell:
            raise InputError(f"{value!r}: found characters outside ASCII, expected a plain path")
        rest = '"${CLASSPATH:+:$CLASSPATH}"' if name == "CLASSPATH" else ""
        yield f"export {name}={for_shell}{rest}"


def _refuse_conflicts(place: Place, part: Part) -> None:
    """Variables come after all files: what ``properties`` says would be overruled, too."""
    files = [file for file in place.files if not (place.shell and file == place.settings)]
    for file in files:
        _refuse_conflict(file, changes.read(file) or b"", part)


def _refuse_conflict(path: Path, content: bytes, part: Part) -> None:
    for number, key, value in _entries(path, content):
        if key in part.settings and value.strip() != part.settings[key]:
            other = SELECTOR if part.name == HOOKS else HOOKS
            raise InputError(
                f"{path}:{number}: found {key} = {value.strip()}, which is your own choice and is "
                f"kept; expected it unset: take the line out, or install --only {other}"
            )


def _entries(path: Path, content: bytes) -> list[tuple[int, str, str]]:
    """What a property file says outside our block, by line. Raises InputError."""
    found = block.find(content, str(path))
    # With the block's own lines empty, the numbers of all others are right.
    content = found.before + b"\n" * found.block.count(b"\n") + found.after
    try:
        return list(properties.entries(content.decode("utf-8", "surrogateescape")))
    except ValueError as error:
        raise InputError(f"{path}: {error}, expected a property file that Pegasus reads") from None
