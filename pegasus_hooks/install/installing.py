"""From parts and a place to the edits that install them, or take them out; and which workflows that
are queued or run need what is installed, and would fail without it.

Asked for those are the kernel, for DAGMan processes, and HTCondor's queue, where there is one: it
also knows those that wait for their DAGMan to start.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from monitors.workflows.planned import job_files
from network_provisioner.base.errors import AdonError, InputError
from pegasus_hooks import plugin
from pegasus_hooks.install.edits import (
    FileEdit,
    block_parts,
    find_block,
    heading,
    read,
    with_block,
    without_block,
)
from pegasus_hooks.install.home import InstallTarget, real
from pegasus_hooks.install.parts import (
    HOOKS,
    JARS,
    NAMES,
    PROGRAMS,
    SELECTOR,
    InstallPart,
    jar_edit,
    program_edit,
)
from pegasus_hooks.prepost import hookscripts
from site_selector.catalogs import properties

PROC = Path("/proc")
_OPTION = b"-Dag"  # by which DAGMan, and Pegasus's program around it, are told what to run
_PLANNING = b".pre.sh "  # the PRE by which DAGMan plans a sub-workflow
_QUEUE = ("condor_q", "-allusers", "-constraint", "JobUniverse == 7", "-af", "Iwd")
_QUEUE_S = 20.0
Folders = Callable[[], Iterable[Path]]


def changes_to_install(
    place: InstallTarget,
    parts: Sequence[InstallPart],
    others: Sequence[InstallTarget] = (),
    keep: Collection[str] = (),
    in_use: Collection[str] = (),
) -> list[FileEdit]:
    """Programs first: settings that name them come when they are there. What was installed at
    ``others``, places that share their programs, is taken out; parts named in ``keep`` stay as they
    are everywhere, and of those ``in_use`` the programs.

    Raises InputError if a file cannot be read, is not ours, or has a setting of the user's own
    that ours would overrule.
    """
    for part in parts:
        _refuse_conflicts(place, part)
    jars = {name: content for part in parts for name, content in part.jars.items()}
    programs = {name: file for part in parts for name, file in part.programs.items()}
    named = _names_jar((place, *others))
    return [
        *(jar_edit(place.jars / name, content, named) for name, content in jars.items()),
        *(program_edit(place.programs / name, file) for name, file in programs.items()),
        *(_with_block(place, file, parts, keep) for file in place.files),
        *(_with_block(place, file, (), keep) for file in _files(others) if file not in place.files),
        # What an earlier installation brought and this one does not, last: no setting names it.
        *_removals(place, named, {*keep, *in_use}, {*jars, *programs}),
    ]


def changes_to_undo(
    place: InstallTarget,
    others: Sequence[InstallTarget] = (),
    keep: Collection[str] = (),
    in_use: Collection[str] = (),
) -> list[FileEdit]:
    """Settings first, then programs; of ``others`` that share them, too. Parts named in ``keep``
    stay, and of those ``in_use``, which workflows still need, the programs.

    Raises InputError.
    """
    files = _files((place, *others))
    return [
        *(_with_block(place, file, (), keep) for file in files),
        *_removals(place, _names_jar((place, *others)), {*keep, *in_use}),
    ]


def _names_jar(places: Sequence[InstallTarget]) -> bool:
    """Whether our settings at one of the places are those of the plug-in."""
    lines = (
        line
        for file in _files(places)
        for line in block_parts(read(file), str(file)).get(SELECTOR, ())
    )
    return any(plugin.SITE_SELECTOR_CLASS in line for line in lines)


def _files(places: Sequence[InstallTarget]) -> list[Path]:
    return list(dict.fromkeys(file for place in places for file in place.files))


def _removals(
    place: InstallTarget, named: bool, keep: Collection[str], installed: Collection[str] = ()
) -> Iterator[FileEdit]:
    if SELECTOR not in keep:
        for name in JARS:
            if name not in installed:
                yield jar_edit(place.jars / name, None, named)
    if HOOKS not in keep:
        for name in PROGRAMS:
            if name not in installed:
                yield program_edit(place.programs / name, None)


def _with_block(
    place: InstallTarget, file: Path, parts: Sequence[InstallPart], keep: Collection[str]
) -> FileEdit:
    """The block of a file with those of the place's ``parts`` that go there, and those of its own
    that are named in ``keep``; no block without any."""
    content = read(file)
    own = block_parts(content, str(file)).items()
    settings = {name: lines for name, lines in own if name in keep}
    for part in parts:
        settings.pop(part.name, None)
        if _file_of(place, part) == file:
            settings[part.name] = list(_lines(place, part))
    lines = [line for name in NAMES for line in settings.get(name, ())]
    if not lines:
        return FileEdit(file, content, without_block(content, str(file)))
    after = with_block(content, lines, str(file), not file.parent.exists())
    return FileEdit(file, content, after)


def remaining_files(edits: Iterable[FileEdit]) -> list[Path]:
    """Files of our names that stay, for they are not known to be ours."""
    names = {*JARS, *PROGRAMS}
    return [
        edit.path
        for edit in edits
        if edit.before is not None and not edit.needed and edit.path.name in names
    ]


def own_choice(path: Path, parts: Sequence[InstallPart]) -> str | None:
    """Where a property file says otherwise than the parts, in one line; None if it does not."""
    try:
        for part in parts:
            _refuse_conflict(path, read(path) or b"", part)
    except InputError as error:
        return str(error).partition(", which")[0]
    return None


def own_post(path: Path) -> str | None:
    """Where a property file has another POST than Pegasus's, in one line; None if it has not."""
    for number, key, value in _entries(path, read(path) or b""):
        if key == hookscripts.POST_PROPERTY and value.strip() not in hookscripts.PEGASUS_POSTS:
            return f"{path}:{number}: found {key} = {value.strip()}"
    return None


def environment(place: InstallTarget, parts: Sequence[InstallPart]) -> dict[str, str]:
    """The variables that a shell's start file gets; Pegasus reads ``_PEGASUS__A__B`` as
    ``pegasus.a.b``, and nothing else from variables."""
    parts = [part for part in parts if part.variables]
    variables = {
        "_" + key.replace(".", "__").upper(): value
        for part in parts
        for key, value in part.settings.items()
    }
    jars = [str(place.jars / name) for part in parts for name in part.jars]
    return variables | ({"CLASSPATH": ":".join(jars)} if jars else {})


def _file_of(place: InstallTarget, part: InstallPart) -> Path:
    """Where its settings go."""
    if place.properties is not None and not part.variables:
        return place.properties
    return place.settings


def _lines(place: InstallTarget, part: InstallPart) -> Iterator[str]:
    if not (place.shell and part.variables):
        yield from part.lines()
        return
    yield heading(part.name, part.what)
    for name, value in environment(place, [part]).items():
        for_shell = shlex.quote(value)
        if not for_shell.isascii() or "\n" in for_shell:
            raise InputError(f"{value!r}: found characters outside ASCII, expected a plain path")
        rest = '"${CLASSPATH:+:$CLASSPATH}"' if name == "CLASSPATH" else ""
        yield f"export {name}={for_shell}{rest}"


def _refuse_conflicts(place: InstallTarget, part: InstallPart) -> None:
    """Variables come after all files: what ``properties`` says would be overruled, too."""
    files = [file for file in place.files if not (place.shell and file == place.settings)]
    for file in files:
        _refuse_conflict(file, read(file) or b"", part)


def _refuse_conflict(path: Path, content: bytes, part: InstallPart) -> None:
    for number, key, value in _entries(path, content):
        if key in part.settings and value.strip() != part.settings[key]:
            other = SELECTOR if part.name == HOOKS else HOOKS
            raise InputError(
                f"{path}:{number}: found {key} = {value.strip()}, which is your own choice and is "
                f"kept; expected it unset: take the line out, or install --only {other}"
            )


def _entries(path: Path, content: bytes) -> list[tuple[int, str, str]]:
    """What a property file says outside our block, by line. Raises InputError."""
    block = find_block(content, str(path))
    # With the block's own lines empty, the numbers of all others are right.
    content = block.before + b"\n" * block.block.count(b"\n") + block.after
    try:
        return list(properties.entries(content.decode("utf-8", "surrogateescape")))
    except ValueError as error:
        raise InputError(f"{path}: {error}, expected a property file that Pegasus reads") from None


def needing(place: InstallTarget, sources: Iterable[Folders] = ()) -> dict[str, list[Path]]:
    """By part the submit directories, as far as the user may see them, that need its programs;
    parts that nobody needs are left out. ``sources`` tell where DAGs run."""
    places = sorted(
        {folder for source in sources or (running_dags, queued_dags) for folder in source()}
    )
    needs = {
        SELECTOR: [folder for folder in places if _plans(folder, place.planner)],
        HOOKS: [folder for folder in places if _calls(folder, os.fsencode(place.programs) + b"/")],
    }
    return {name: folders for name, folders in needs.items() if folders}


def running_dags(proc: Path = PROC) -> Iterator[Path]:
    """Where this machine's DAGMan processes run."""
    for process in proc.glob("[0-9]*"):
        try:
            if _OPTION in (process / "cmdline").read_bytes().split(b"\0"):
                yield (process / "cwd").readlink()
        except OSError:  # it ended, or is somebody else's
            continue


def queued_dags() -> Iterator[Path]:
    """Where the jobs run that DAGMan is to HTCondor; nowhere without an HTCondor that answers."""
    if shutil.which(_QUEUE[0]) is None:
        return
    try:
        done = subprocess.run(
            _QUEUE, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_QUEUE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
    yield from (Path(line) for line in done.stdout.splitlines() if line.startswith("/"))


def _calls(folder: Path, scripts: bytes) -> bool:
    """Whether jobs have one of the ``scripts``."""
    return any(b" " + scripts in text for text in _texts(folder, "*.dag"))


def _plans(folder: Path, planner: Path | None) -> bool:
    """Whether there are sub-workflows, which ``planner`` is still to plan with the selector."""
    if planner is None:  # DAGMan does not get the CLASSPATH of a user's shell
        return False
    selector = plugin.SITE_SELECTOR_CLASS.encode()
    if not any(_PLANNING in text for text in _texts(folder, "*.dag")) or not any(
        selector in text for text in _texts(folder, "pegasus.*.properties")
    ):
        return False
    with contextlib.suppress(AdonError):
        return real(Path(job_files.braindump(folder).get("planner", ""))) == real(planner)
    return False


def _texts(folder: Path, pattern: str) -> Iterator[bytes]:
    for file in folder.glob(pattern):
        with contextlib.suppress(OSError):
            yield file.read_bytes()
