"""The files of one call of the transfer plug-in."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from condor_plugins.irods import account, messages
from condor_plugins.irods.results import MOST, Result, streams
from condor_plugins.irods.transfer import LIMITS, Limits, Sessions, TransferStats, Way, get, put
from condor_plugins.jobs import jobad

_BUFFERS = {True: Path("/proc/sys/net/ipv4/tcp_wmem"), False: Path("/proc/sys/net/ipv4/tcp_rmem")}
_USUAL_WINDOW = 2 * 2**20
NO_SETTINGS: Mapping[str, str] = {}
_NOBODY: Mapping[str, Any] = {"irods_user_name": "", "irods_host": "", "irods_port": ""}


def move(
    files: Sequence[tuple[str, str]],
    upload: bool,
    limits: Limits = LIMITS,
    streams: int = 0,
    more: Mapping[str, str] = NO_SETTINGS,
) -> list[Result]:
    """Results as HTCondor wants them. After one that failed no other is begun. ``streams`` of one
    file where the job's ad says nothing; ``more``: settings beside the account's."""
    call = _Call(upload, limits, streams, more)
    results = [call.transfer(*file) for file in files[:1]]  # a refused login is tried once
    with ThreadPoolExecutor(MOST) as pool:
        results += pool.map(lambda file: call.transfer(*file), files[1:])
    call.close()
    return [result for result in results if result]


class _Call:
    def __init__(self, upload: bool, limits: Limits, wanted: int, more: Mapping[str, str]) -> None:
        file = os.environ.get("_CONDOR_JOB_AD")
        ad = jobad.parse(Path(file).read_text(errors="replace").splitlines()) if file else {}
        if wanted:
            ad = {"AdonStreams": wanted, **ad}
        self._more = more
        self._streams = partial(streams, ad, window=_window(upload))
        self._upload, self._limits, self._turn = upload, limits, threading.Lock()
        self._places: dict[account.IrodsUrl, tuple[Mapping[str, Any], Way]] = {}
        self._lock = threading.Lock()
        self._failed = False

    def transfer(self, link: str, name: str) -> Result:
        """Move one file; {} for one that was not begun."""
        if self._failed:
            return {}
        stats, began, why = TransferStats(), time.time(), ""
        url, settings = account.IrodsUrl(link), _NOBODY
        try:
            url = account.parsed(link)
            settings, way = self._place(url.place)
            (put if self._upload else get)(way, url.path, Path(name), stats)
        except Exception as error:  # of the client are many kinds
            self._failed = True
            why = messages.sentence(error, url, settings)
        return {
            "TransferUrl": link, "TransferFileName": name, "TransferProtocol": "irods",
            "TransferType": "upload" if self._upload else "download",
            "TransferSuccess": not why, **({"TransferError": why} if why else {}),
            "TransferHostName": settings["irods_host"],
            "TransferFileBytes": stats.size, "TransferTotalBytes": stats.total,
            "TransferStartTime": int(began), "TransferEndTime": int(time.time()),
            "ConnectionTimeSeconds": stats.connecting_s,
            # What else there is, HTCondor keeps here only.
            "DeveloperData": {"TransferTries": stats.tries, "TransferStreams": stats.streams,
                              "TransferChecksum": stats.checksum},
        }  # fmt: skip

    def _place(self, place: account.IrodsUrl) -> tuple[Mapping[str, Any], Way]:
        with self._lock:
            if place not in self._places:
                settings = {**account.account(place, os.environ, Path.cwd()), **self._more}
                sessions = Sessions(partial(account.open_session, settings, self._limits.silence_s))
                way = Way(sessions, self._streams, self._turn, self._limits)
                self._places[place] = settings, way
            return self._places[place]

    def close(self) -> None:
        for _, way in self._places.values():
            way.sessions.close()


def _window(upload: bool) -> int:
    """Bytes that one of this machine's TCP connections can have under way: half of its largest
    buffer, since the kernel keeps the other half for itself."""
    try:
        return int(_BUFFERS[upload].read_text().split()[2]) // 2
    except (OSError, ValueError, IndexError):
        return _USUAL_WINDOW
