"""Files that are ours alone: how they are told from somebody else's of the same name."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from network_provisioner.base.errors import InputError
from pegasus_hooks import hookscripts, plugin
from pegasus_hooks.install import changes
from pegasus_hooks.install.changes import Change
from pegasus_hooks.install.home import real
from pegasus_hooks.install.parts import File

# Every file that any part ever brought, so that a later version can take it out; of a jar a class
# in it by which it is known as ours.
JARS = {plugin.JAR_NAME: plugin.SITE_SELECTOR_CLASS.replace(".", "/") + ".class"}
# The configuration last: it is there as long as a script that names it.
PROGRAMS = (hookscripts.PRE_NAME, hookscripts.POST_NAME, hookscripts.CONFIG_NAME)


def jar(path: Path, content: bytes | None) -> Change:
    """A change of one of our jars. Raises InputError where a file of that name is somebody's."""
    path = real(path)
    before = changes.read(path)
    size = len(content if content is not None else before or b"")
    shown = f"ADON's planner plug-in, {size} bytes"
    return _change(Change(path, before, content, shown), before is None or _our_jar(path, before))


def program(path: Path, file: File | None) -> Change:
    """A change of a script or its configuration. Raises InputError as above."""
    path = real(path)
    before = changes.read(path)
    after, mode = (file.content, file.mode) if file else (None, 0o644)
    known = before is None or _our_program(path, before)
    return _change(Change(path, before, after, mode=mode), known)


def _change(change: Change, is_ours: bool) -> Change:
    if is_ours or not change.needed:
        return change
    if change.after is None:
        return Change(change.path, change.before, change.before)
    raise InputError(f"{change.path}: found a file that is not ADON's, expected none of this name")


def _our_jar(path: Path, content: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            return JARS.get(path.name) in opened.namelist()
    except zipfile.BadZipFile:
        return False


def _our_program(path: Path, content: bytes) -> bool:
    if path.name != hookscripts.CONFIG_NAME:
        return b"\n" + hookscripts.MARK.encode() in content
    try:
        data = json.loads(content)
    except ValueError:
        return False
    return isinstance(data, dict) and "broker" in data
