"""A transfer tuned: streams and buffer of GridFTP, threads of iRODS, files side by side.

pegasus-transfer takes none of these from a list, so they go in by what it reads: its own argument
``--threads``, and the programs that it finds on PATH. PRE edits the job's submit file before DAGMan
submits it:

    arguments    --threads N  (with it pegasus-transfer does not look at PEGASUS_TRANSFER_THREADS)
    environment  ADON_STREAMS, ADON_BUFFER_BYTES, ADON_THREADS, ADON_PORTS, and our tools' folder
                 first on PATH; ADON_PYTHON, which runs iRODS's commands where there are none;
                 PEGASUS_MULTIPART_DIR if unset: where to leave records of what it
                 moved; PYTHONPATH, with what has it begin at once

The tools (``pegasus_hooks/tools/bin``) put those values into the arguments of the program they are
named after, and become it. Without ``threads``, and with many small files, as many of them
move at once as fill the path that PRE was given.

What a line was before is above it in a comment, so that every edit begins with the text as
Pegasus wrote it. Only Pegasus's own transfer jobs are edited, and what runs on other machines,
where there are no such tools, gets ``--threads`` alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitors.workflows.planned import job_files
from monitors.workflows.planned.transferlist import SitePair, SiteUrl, Transfer, is_local
from network_provisioner.base.model import SEEN, Service
from network_provisioner.base.units import transfer_time

TOOLS = Path(__file__).resolve().parents[1] / "tools" / "bin"
AT_ONCE = TOOLS.with_name("python")
"""The folder of what has pegasus-transfer begin without its sleep, for PYTHONPATH."""
_GRIDFTP = frozenset({"gsiftp", "sshftp", "ftp"})
_IRODS = frozenset({"irods"})
_USUAL_STREAMS = 4  # pegasus-transfer's own ``-parallel 4``, from server to server only
_USUAL_IRODS_THREADS = 4  # and ``-N 4``
# What a small file takes besides its bytes on a wide-area path: a connection, and TCP's slow start.
_START_S = 0.75
# At once, at most. One ``globus-url-copy`` keeps its connections for all its files, and each thread
# of pegasus-transfer calls it twice, for which it has to have this many.
_MOST_FILES, _MOST_GRIDFTP, _WORTH_TWO_CALLS = 32, 8, 50
_MOST_IRODS = 4  # each has connections of its own for its threads
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_BEFORE = "# adon: before: "
_RECORDS = "PEGASUS_MULTIPART_DIR"
_PORT_RANGES = ("GLOBUS_TCP_PORT_RANGE", "GLOBUS_TCP_SOURCE_RANGE")
_PORTS_AT = {
    ("server", "server"): "client",
    ("file", "server"): "src",
    ("server", "file"): "dst",
}
_WORD = re.compile(r"(?:[^ \t']|'(?:[^']|'')*')+")
_THREADS = re.compile(r"(--threads[ =])(\d+)")


@dataclass(frozen=True, slots=True)
class TransferTuning:
    """0 for what is to stay as it is. ``side_by_side`` is not 0 if streams and threads are as
    they are because many small files move at once: that is nothing for other transfers to learn."""

    streams: int = 0
    buffer_bytes: int = 0
    threads: int = 0
    side_by_side: int = 0

    def as_json(self) -> dict[str, int]:
        """What is not 0."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name))}


def wanted_tuning(services: Iterable[Service]) -> TransferTuning:
    """The most that any of a job's templates wants: its pairs share one call of the tool."""
    order = list(services)
    return TransferTuning(
        *(
            max((getattr(s, name) for s in order), default=0)
            for name in ("streams", "buffer_bytes", "threads")
        )
    )


def files_at_once(file_bytes: int, files: int, rate_bps: float) -> int:
    """How many files of that size fill a path of that rate side by side; 0 if it is unknown."""
    if not file_bytes or not rate_bps:
        return 0
    return min(files, 1 + int(_START_S / transfer_time(file_bytes, rate_bps)))


def tune(
    submit_file: Path,
    pairs: Sequence[SitePair],
    want: TransferTuning,
    records: str = "",
    ports: Sequence[int] = (),
    at_once: int = 0,
) -> dict[str, int]:
    """Have the job's submit file say what is wanted, or what it said before us, name the folder
    for ``records``, and the first and last of the ``ports`` that its tools are to use; returns what
    now holds of the tuning. Where no threads are wanted, ``at_once`` files are to move side by
    side, if those are more. Raises OSError if the file cannot be written."""
    try:
        old = submit_file.read_bytes()
    except OSError:  # nothing to submit, or not in Pegasus's way
        return {}
    text = old.decode("utf-8", "surrogateescape")
    transfers = [t for pair in pairs for t in pair.transfers]
    made, holds = tuned_submit_file(text, transfers, want, records, ports, at_once)
    new = made.encode("utf-8", "surrogateescape")
    if new != old:
        draft = submit_file.with_name(f".{submit_file.name}.{os.getpid()}")
        try:
            draft.write_bytes(new)
            was = submit_file.stat()
            draft.chmod(was.st_mode & 0o7777)
            # pegasus-monitord 6.0 fails, and its DAG with it, where this is after the job's start.
            os.utime(draft, ns=(was.st_atime_ns, was.st_mtime_ns))
            draft.replace(submit_file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    return holds.as_json()


def tuned_submit_file(
    text: str,
    transfers: Sequence[Transfer],
    want: TransferTuning,
    records: str = "",
    ports: Sequence[int] = (),
    at_once: int = 0,
) -> tuple[str, TransferTuning]:
    """The submit file for what is wanted, and what of the tuning it can say."""
    text = original_submit_file(text)
    lines = text.split("\n")
    numbers = _editable(text, lines)
    if numbers is None:
        return text, TransferTuning()
    at_environment, at_arguments = numbers
    here = job_files.command(text, "universe").lower() in job_files.LOCAL_UNIVERSES
    schemes = {scheme for t in transfers for scheme in t.schemes}
    gridftp, irods = bool(schemes & _GRIDFTP), bool(schemes & _IRODS)
    arguments = lines[at_arguments]
    if not want.threads:
        most = _MOST_FILES
        if irods:
            most = _MOST_IRODS
        elif gridftp:
            most = min(_MOST_GRIDFTP, len(transfers) // _WORTH_TWO_CALLS)
        want = _side_by_side(want, min(at_once, most), arguments)
    holds = TransferTuning(
        want.streams if here and gridftp and want.streams != _USUAL_STREAMS else 0,
        want.buffer_bytes if here and gridftp else 0,
        want.threads if not irods or here or want.side_by_side else 0,
        want.side_by_side,
    )
    values: dict[str, int | str] = {
        "ADON_STREAMS": holds.streams,
        "ADON_BUFFER_BYTES": holds.buffer_bytes,
        "ADON_PORTS": ",".join(map(str, ports)) if here and gridftp else "",
    }
    if irods and here:
        values["ADON_PYTHON"] = sys.executable
    if irods and not holds.side_by_side:
        values["ADON_THREADS"] = holds.threads
    elif holds.threads and _THREADS.search(arguments):
        lines[at_arguments] = _THREADS.sub(rf"\g<1>{holds.threads}", arguments)
    else:
        values["PEGASUS_TRANSFER_THREADS"] = holds.threads
    ours = {name: str(value) for name, value in values.items() if value}
    lines[at_environment] = _with_environment(lines[at_environment], ours, records, here)
    before = text.split("\n")
    for n in sorted((at_environment, at_arguments), reverse=True):
        if lines[n] != before[n]:
            lines.insert(n, _BEFORE + before[n])
    return "\n".join(lines), holds


def _side_by_side(want: TransferTuning, files: int, arguments: str) -> TransferTuning:
    """So many files at once, if those are more than there are; they divide the streams of one, of
    which each would carry next to nothing."""
    threads = _THREADS.search(arguments)
    if files <= (int(threads[2]) if threads else 1):
        return want
    streams = max(1, (want.streams or _USUAL_STREAMS) // files)
    return TransferTuning(streams, want.buffer_bytes, files, files)


def ports_at(pair: SitePair, submit_text: str, watched: bool = False) -> str:
    """Where the tools that move a pair's files can use ports that are given to them: ``src`` or
    ``dst`` where they move the bytes to or from a file of this machine, ``client`` where they have
    two servers do so. Where they cannot, or somebody has said which ports they use, ``seen`` if
    they move the bytes and a watcher finds their processes by the job; else ""."""
    if job_files.command(submit_text, "universe").lower() not in job_files.LOCAL_UNIVERSES:
        return ""
    text, ends = original_submit_file(submit_text), _ends(pair)
    editable = _editable(text, text.split("\n")) is not None
    if editable and len(ends) == 1 and not any(name in text for name in _PORT_RANGES):
        (kinds,) = ends
        if kinds in _PORTS_AT:
            return _PORTS_AT[kinds]
    return SEEN if watched and job_files.JOB in text and client_at(pair) else ""


def client_at(pair: SitePair) -> str:
    """The end, ``src`` or ``dst``, where all of a pair's files are this machine's, so that it is
    here that their bytes are moved; "" for none or both."""
    here = [all(kind == "file" for kind in kinds) for kinds in zip(*_ends(pair), strict=True)]
    return {(True, False): "src", (False, True): "dst"}.get((here[0], here[1]), "")


def _ends(pair: SitePair) -> set[tuple[str, str]]:
    return {(_end(t.source, pair.src), _end(t.destination, pair.dst)) for t in pair.transfers}


def _end(url: SiteUrl, site: str) -> str:
    """What is at one end of a pair: where bytes are relayed, a file of this machine."""
    if url.site != site or is_local(url.url):
        return "file"
    return "server" if url.url.partition(":")[0] in _GRIDFTP else ""


def original_submit_file(text: str) -> str:
    """The submit file as it was before any edit of ours."""
    lines = iter(text.split("\n"))
    out = []
    for line in lines:
        if line.startswith(_BEFORE):
            out.append(line.removeprefix(_BEFORE))
            next(lines, None)
        else:
            out.append(line)
    return "\n".join(out)


def used_tuning(pair: SitePair, tuned: Mapping[str, object]) -> dict[str, int]:
    """What moved the files of ``pair``: streams, buffer in bytes, threads; 0 if unset. Of
    pegasus-transfer's threads only those that were wanted: how many it has else depends on how many
    files it has, and is nothing for others to learn."""
    ends = {t.schemes for t in pair.transfers}
    given = {k: v for k, v in tuned.items() if isinstance(v, int) and not isinstance(v, bool)}
    if given.get("side_by_side"):
        return {"streams": 0, "buffer_bytes": 0, "threads": 0}
    streams, threads = 0, given.get("threads", 0)
    if ends and all(set(schemes) <= _GRIDFTP for schemes in ends):
        streams = given.get("streams", _USUAL_STREAMS)
    elif ends and all(set(schemes) & _GRIDFTP for schemes in ends):
        streams = 1  # between a server and a file of this machine
    elif ends and all(set(schemes) & _IRODS for schemes in ends):
        threads = given.get("threads", _USUAL_IRODS_THREADS)
    buffer_bytes = given.get("buffer_bytes", 0) if streams else 0
    return {"streams": streams, "buffer_bytes": buffer_bytes, "threads": threads}


def _editable(text: str, lines: Sequence[str]) -> tuple[int, int] | None:
    """Where a transfer job's environment and arguments are; None for what we do not edit."""
    at_environment, at_arguments = (_find(lines, name) for name in ("environment", "arguments"))
    if job_files.attribute(text, "pegasus_wf_xformation") != job_files.TRANSFER:
        return None
    if at_environment is None or at_arguments is None:
        return None
    return at_environment, at_arguments


def _find(lines: Sequence[str], name: str) -> int | None:
    """The line of a command that occurs there once, in the form Pegasus writes it."""
    starts = f'{name} = "'
    numbers = [n for n, line in enumerate(lines) if line.startswith(name)]
    if len(numbers) != 1 or not lines[numbers[0]].startswith(starts):
        return None
    return numbers[0] if lines[numbers[0]].endswith('"') else None


def _with_environment(line: str, ours: Mapping[str, str], records: str, here: bool) -> str:
    head, _, rest = line.partition('"')
    arguments = _WORD.findall(rest[:-1])

    def first(folder: Path, name: str, usual: str) -> str:
        path = next((v for word in arguments if (v := _value(word, name)) is not None), usual)
        rest = [part for part in path.split(":") if part not in ("", str(folder))]
        return ":".join([str(folder), *rest])

    added = {"PATH": first(TOOLS, "PATH", _USUAL_PATH), **ours} if ours else {}
    if here:
        added["PYTHONPATH"] = first(AT_ONCE, "PYTHONPATH", "")
    if records and all(_value(word, _RECORDS) is None for word in arguments):
        added[_RECORDS] = records
    if not added:
        return line
    kept = [w for w in arguments if all(_value(w, name) is None for name in added)]
    return f'{head}"{" ".join([*kept, *(_quoted(f"{k}={v}") for k, v in added.items())])}"'


def _value(word: str, name: str) -> str | None:
    """The value of a variable in a word as HTCondor quotes it: all or a part of it in single
    quotes, inside of which one is doubled; a double quote is doubled anywhere."""
    plain, inside, after = "", False, ""
    for char in word:
        if char == "'":
            plain += "'" if not inside and after == "'" else ""
            inside = not inside
        else:
            plain += char
        after = char
    value = plain.replace('""', '"')
    return value.removeprefix(f"{name}=") if value.startswith(f"{name}=") else None


def _quoted(word: str) -> str:
    text = word.replace("'", "''").replace('"', '""')
    return f"'{text}'" if set(word) & set(" \t'") else text
