"""From parts and a place to the changes of files that install them, or take them out."""

from __future__ import annotations

import contextlib
import io
import shlex
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from network_provisioner.errors import InputError
from pegasus_hooks import plugin, properties
from pegasus_hooks.install import block, changes
from pegasus_hooks.install.changes import Change
from pegasus_hooks.install.home import Place, real
from pegasus_hooks.install.parts import Part

# Every jar that any part ever brought, so that a later version can take it out, and a class in it
# by which it is known as ours.
_OUR_JARS = {plugin.JAR_NAME: plugin.SITE_SELECTOR_CLASS.replace(".", "/") + ".class"}


def changes_to_install(
    place: Place, parts: Sequence[Part], others: Sequence[Place] = ()
) -> list[Change]:
    """Programs first: settings that name them come when they are there. What was installed at
    ``others``, places that share their programs, is taken out.

    Raises InputError where a file cannot be read, is not ours, or has a setting of the user's own
    that ours would overrule.
    """
    content = changes.read(place.settings)
    wished = {key: value for part in parts for key, value in part.settings.items()}
    if not place.shell:
        _refuse_conflict(place.settings, content or b"", wished)
    for other in place.also:
        _refuse_conflict(other, changes.read(other) or b"", wished)
    jars = {name: content for part in parts for name, content in part.jars.items()}
    lines = [line for part in parts for line in _lines(place, part)]
    after = block.put(content, lines, str(place.settings), not place.settings.parent.exists())
    return [
        *(_jar(place.jars / name, content) for name, content in jars.items()),
        Change(place.settings, content, after),
        *(_without_block(other) for other in others),
        # What an earlier installation brought and this one does not, last: no setting names it.
        *(_jar(place.jars / name, None) for name in _OUR_JARS if name not in jars),
    ]


def changes_to_undo(place: Place, others: Sequence[Place] = ()) -> list[Change]:
    """Settings first, then programs; of ``others`` that share them, too. Raises InputError."""
    return [
        *(_without_block(each) for each in (place, *others)),
        *(_jar(place.jars / name, None) for name in _OUR_JARS),
    ]


def _without_block(place: Place) -> Change:
    content = changes.read(place.settings)
    return Change(place.settings, content, block.take_out(content, str(place.settings)))


def carry_out(place: Place, wanted: Sequence[Change]) -> None:
    """Make the changes, all or none, and remove folders made for what is no more.

    Raises InputError.
    """
    changes.remove_parts([change.path for change in wanted])
    changes.check_writable([change for change in wanted if change.needed])
    changes.apply(wanted)
    for change in wanted:
        if change.after is not None or change.before is None:
            continue
        own = place.own_jars and change.path.parent == place.jars
        if own or block.find(change.before, str(change.path)).folder:
            with contextlib.suppress(OSError):  # others use it by now
                change.path.parent.rmdir()


def undoing(wanted: Sequence[Change]) -> list[Change]:
    """The changes that bring back what ``wanted`` changed."""
    return [change.reverse() for change in reversed(wanted)]


def own_choice(path: Path, parts: Sequence[Part]) -> str | None:
    """Where a property file says otherwise than the parts, in one line; None where it does not."""
    wished = {key: value for part in parts for key, value in part.settings.items()}
    try:
        _refuse_conflict(path, changes.read(path) or b"", wished)
    except InputError as error:
        return str(error).partition(", which")[0]
    return None


def environment(place: Place, parts: Sequence[Part]) -> dict[str, str]:
    """The variables that a shell's start file gets; Pegasus reads ``_PEGASUS__A__B`` as
    ``pegasus.a.b``."""
    found = {
        "_" + key.replace(".", "__").upper(): value
        for part in parts
        for key, value in part.settings.items()
    }
    jars = [str(place.jars / name) for part in parts for name in part.jars]
    return found | ({"CLASSPATH": ":".join(jars)} if jars else {})


def _lines(place: Place, part: Part) -> Iterator[str]:
    if not place.shell:
        yield from part.lines()
        return
    yield f"# {part.name}: {part.what}"
    for name, value in environment(place, [part]).items():
        for_shell = shlex.quote(value)
        if not for_shell.isascii() or "\n" in for_shell:
            raise InputError(f"{value!r}: found characters outside ASCII, expected a plain path")
        rest = '"${CLASSPATH:+:$CLASSPATH}"' if name == "CLASSPATH" else ""
        yield f"export {name}={for_shell}{rest}"


def _refuse_conflict(path: Path, content: bytes, wished: dict[str, str]) -> None:
    found = block.find(content, str(path))
    # With the block's own lines empty, the numbers of all others are right.
    content = found.before + b"\n" * found.block.count(b"\n") + found.after
    try:
        said = list(properties.entries(content.decode("utf-8", "surrogateescape")))
    except ValueError as error:
        raise InputError(f"{path}: {error}, expected a property file that Pegasus reads") from None
    for number, key, value in said:
        if key in wished and value.strip() != wished[key]:
            raise InputError(
                f"{path}:{number}: found {key} = {value.strip()}, which is your own choice and is "
                "kept; expected it unset: take the line out to let ADON choose"
            )


def _jar(path: Path, content: bytes | None) -> Change:
    """A change of one of our jars. Raises InputError where a file of that name is somebody's."""
    path = real(path)
    before = changes.read(path)
    if before is not None and before != content and not _ours(path.name, before):
        if content is None:
            return Change(path, before, before)
        raise InputError(f"{path}: found a file that is not ADON's, expected none of this name")
    size = len(content if content is not None else before or b"")
    return Change(path, before, content, f"ADON's planner plug-in, {size} bytes")


def _ours(name: str, content: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as jar:
            return _OUR_JARS.get(name) in jar.namelist()
    except zipfile.BadZipFile:
        return False
