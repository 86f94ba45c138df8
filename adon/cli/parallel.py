"""The same work for many values in processes of their own, which end when this one does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from adon.machine.syscalls import tie_to
from network_provisioner.base.errors import AdonError

T = TypeVar("T")
R = TypeVar("R")


class Failed:
    """What work raised, on its way back."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def each(
    values: Sequence[T],
    work: Callable[[T], R],
    processes: int,
    done: Callable[[int], None] = lambda _count: None,
) -> list[R]:
    """``work`` of every value, in their order; values that come first are begun first.

    ``work`` and values must be picklable. ``done`` is called with the number of results whenever
    there is one more. With one process the work is done here. However this function ends, no
    process is left.

    Raises what ``work`` raises, and AdonError where a process was killed.
    """
    if processes <= 1 or len(values) <= 1:
        out = []
        for value in values:
            out.append(work(value))
            done(len(out))
        return out
    results: dict[int, R] = {}
    with _workers(work, min(processes, len(values))) as workers:
        waiting = iter(enumerate(values))
        busy: dict[Connection, int] = {}
        for pipe in workers:
            _give(pipe, waiting, busy)
        while busy:
            for ready in connection.wait(list(busy)):
                pipe = next(p for p in busy if p is ready)
                index = busy.pop(pipe)
                results[index] = _take(pipe, workers[pipe])
                done(len(results))
                _give(pipe, waiting, busy)
    return [results[i] for i in range(len(values))]


def _give(pipe: Connection, waiting: Iterator[tuple[int, T]], busy: dict[Connection, int]) -> None:
    for index, value in waiting:
        pipe.send(value)
        busy[pipe] = index
        return


def _take(pipe: Connection, process: BaseProcess) -> Any:
    try:
        found: object = pipe.recv()
    except (EOFError, ConnectionResetError) as error:
        process.join()
        raise AdonError(
            f"found a worker process ended with status {process.exitcode}, expected it to go on "
            "(out of memory? --jobs 1 needs less)"
        ) from error
    if isinstance(found, Failed):
        raise found.error
    return found


@contextmanager
def _workers(work: Callable[[T], R], count: int) -> Iterator[dict[Connection, BaseProcess]]:
    context = get_context("spawn")  # nothing of this process, such as its threads, is copied
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(
                target=_serve, args=(theirs, work, os.getpid()), daemon=True
            )
            workers[ours] = process
            process.start()
            theirs.close()
        yield workers
    finally:
        for process in workers.values():
            if process.pid is not None:
                process.kill()
                process.join()


def _serve(pipe: Connection, work: Callable[[T], R], parent: int) -> None:
    """What a worker does until the pipe's other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends us
    if not tie_to(parent):
        return
    while True:
        try:
            value: T = pipe.recv()
        except EOFError:
            return
        try:
            found: object = work(value)
        except Exception as error:  # whatever it is, it is raised where the result is waited for
            found = Failed(error)
        try:
            pipe.send(found)
        except (BrokenPipeError, ConnectionResetError):
            return
