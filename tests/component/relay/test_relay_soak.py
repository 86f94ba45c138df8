"""A thousand transfers through agents that are killed again and again: whole and right, or reset,
and never anything else."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from relay_rig import AGENTS, SESSION, RelayRig, relays

PORT, TRANSFERS, AT_ONCE, KILLS = 5001, 1000, 8, 40
DATA = random.Random(20).randbytes(8 << 20)
WHOLE, RESET, REFUSED = "whole", "reset", "not connected"


def answer(sock: socket.socket) -> None:
    """The server: takes all there is, and answers with its sum and as much data of its own."""
    with sock, suppress(OSError):
        sock.settimeout(120)
        taken, n_bytes = hashlib.sha256(), 0
        while data := sock.recv(1 << 16):
            taken.update(data)
            n_bytes += len(data)
        sock.sendall(taken.digest() + DATA[:n_bytes])


def transfer(rig: RelayRig, n_bytes: int) -> str:
    """What becomes of one. Raises AssertionError if bytes are not those that were sent."""
    try:
        sock = rig.connect(PORT)
    except OSError:
        return REFUSED
    got = bytearray()
    with sock:
        sock.settimeout(120)
        try:
            sock.sendall(DATA[:n_bytes])
            sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(1 << 16):
                got += data
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            return RESET
    assert bytes(got) == hashlib.sha256(DATA[:n_bytes]).digest() + DATA[:n_bytes]
    return WHOLE


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("streams", [1, 6])
def test_a_thousand_transfers_and_random_kills(rig: RelayRig, streams: int) -> None:
    session = replace(SESSION, streams=streams)
    rig.serve(session)
    listener, chance = rig.listen(PORT), random.Random(streams)
    outcomes: Counter[str] = Counter()
    errors: list[BaseException] = []
    up = threading.Event()  # until the next kill
    up.set()
    sizes = [chance.randrange(1 << chance.randrange(1, 24)) for _ in range(TRANSFERS)]

    def serve() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=answer, args=(sock,), daemon=True).start()

    def work() -> None:
        while sizes and not errors:
            up.wait()
            try:
                outcomes[transfer(rig, sizes.pop())] += 1
            except BaseException as error:
                errors.append(error)

    threading.Thread(target=serve, daemon=True).start()
    workers = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    for left in range(KILLS, 0, -1):
        at = len(sizes) * (left - 1) // left  # transfers to go on until the next
        while len(sizes) > at and not errors:
            workers[0].join(0.01)
        up.clear()
        name = chance.choice(list(AGENTS))
        os.kill(rig.agents[name].pid, signal.SIGKILL)
        rig.start(name)
        rig.serve(session)
        up.set()
    for worker in workers:
        worker.join()
    listener.close()
    assert not errors, errors[0]
    assert sum(outcomes.values()) == TRANSFERS
    assert outcomes[WHOLE] > TRANSFERS / 2, outcomes
    assert outcomes[RESET], outcomes
    print(dict(outcomes))


@pytest.mark.long
def test_a_path_that_is_lost_for_seconds(tmp_path: Path) -> None:
    with relays(tmp_path, {"delay_s": 0.01, "rate_bps": 50e6}) as rig, rig.listen(PORT) as listener:
        client = rig.connect(PORT)
        server, _ = listener.accept()
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        with client:
            client.sendall(DATA[: 1 << 20])
            rig.change_link(up=False)
            sender = threading.Thread(target=client.sendall, args=(DATA[1 << 20 :],))
            sender.start()
            time.sleep(3.0)
            rig.change_link(up=True)
            sender.join()
            client.shutdown(socket.SHUT_WR)
            got = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert got == hashlib.sha256(DATA).digest() + DATA
