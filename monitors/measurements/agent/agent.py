"""The agent: asks what to measure, does it at its instant, and sends what came of it.

Three threads of its own: one asks and waits, one sends, one begins runs; and one for each run.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from monitors.measurements.agent.assignments import BrokerClock, PendingAssignments, refusal
from monitors.measurements.agent.broker_link import (
    MOST_RESULTS,
    BrokerLink,
    Orders,
    Receipt,
    orders_of,
    receipt_of,
)
from monitors.measurements.agent.messages import Assignment, Result
from monitors.measurements.agent.perform import able, perform
from monitors.measurements.agent.settings import AgentSettings
from monitors.measurements.agent.spool import MOST_RESULT_BYTES, Spool
from monitors.measurements.probes.probe import Halt
from monitors.workflows.service import FollowService
from monitors.workflows.sink import BrokerRequests, BrokerSink
from network_provisioner.base.clock import since_boot
from network_provisioner.base.errors import AdonError, BrokerError, printable
from network_provisioner.client.broker import Reply

_log = logging.getLogger(__name__)

_WAIT_S = 25.0  # of a long poll
_GRACE_S = 10.0  # beyond that, and for an answer that needs no waiting
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.5, 30.0
_LAST_POST_S = 3.0  # for results when the agent ends
_END_RUNS_S = 10.0
_KEEP_TAKEN_S = 900.0
_TICK_S = 60.0


class Agent:
    """One agent. ``run`` returns when ``halt`` is set."""

    def __init__(
        self,
        settings: AgentSettings,
        halt: Halt,
        carry_out: Callable[..., Result] = perform,
    ) -> None:
        """Raises InputError for settings that cannot be used, and where another agent that runs
        has the same state."""
        self._settings = settings
        self._halt = halt
        self._carry_out = carry_out
        self._able = able(settings)
        self._clock = BrokerClock()
        self._pending = PendingAssignments()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._to_send = threading.Event()
        self._running: set[threading.Thread] = set()
        self._troubles: dict[str, str] = {}
        """By what was asked, why there is no answer now."""
        self._ask_link, self._send_link = BrokerLink(settings), BrokerLink(settings)
        self._spool = Spool(settings.state)
        for key, until in self._spool.known():
            self._pending.had(key, until)

    def describe(self) -> str:
        """What this agent can do, in words."""
        limits, can = self._settings.limits, [t for t, why in self._able.items() if not why]
        usable = [tool for tool in can if tool in limits.tools]
        lacking = [f"{t} ({why})" for t, why in self._able.items() if why and t in limits.tools]
        text = f"agent {self._settings.name}: {', '.join(usable)}"
        return f"{text}; not {', '.join(lacking)}" if lacking else text

    def run(self) -> None:
        """Work until ``halt`` is set. No run, and nothing that one started, outlives it."""
        self._to_send.set()  # what an earlier life left
        threads = [
            threading.Thread(target=self._for_ever, args=(work,), daemon=True)
            for work in (self._keep_asking, self._keep_sending)
        ]
        for thread in threads:
            thread.start()
        waker = threading.Thread(target=self._wake_at_halt, daemon=True)
        waker.start()
        try:
            self._keep_beginning()
        finally:
            self._halt.set()
            deadline = time.monotonic() + _END_RUNS_S
            for thread in (*self._runs(), *threads):
                thread.join(max(0.0, deadline - time.monotonic()))
            if not threads[1].is_alive():
                self._send_last()
            self._spool.close()

    # -- asking ------------------------------------------------------------------------------

    def _keep_asking(self) -> None:
        version, pause_s = 0, _FIRST_PAUSE_S
        wait_s = 0.0  # the first answer at once: it says what time it is there
        while not self._halt.is_set():
            try:
                answer = self._ask_link.ask(
                    "assignments", wait_s + _GRACE_S, self._query(wait_s, version)
                )
                version = self._take(answer)
            except AdonError as error:
                self._complain("assignments", error)
                version, wait_s = 0, 0.0
                self._halt.wait(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
            else:
                self._well("assignments")
                pause_s, wait_s = _FIRST_PAUSE_S, _WAIT_S
                self._to_send.set()

    def _query(self, wait_s: float, version: int) -> dict[str, str]:
        settings = self._settings
        query = {"wait_s": f"{wait_s:g}", "after": str(version), "version": settings.version}
        self._able = able(settings)  # something may have been installed meanwhile
        query |= {"unsent": str(self._spool.unsent()), "dropped": str(self._spool.dropped)}
        usable = [t for t, why in self._able.items() if not why and t in settings.limits.tools]
        query["tools"] = ",".join(usable)
        with self._lock:
            # At once: looking for tools takes its time. And so may a pause between the two clocks.
            before, wall, after = since_boot(), time.time(), since_boot()
            steady, pause_s = (before + after) / 2, after - before
            offset_s = self._clock.now(steady) - wall
            error_s = self._clock.error_s(steady) + pause_s / 2
        if math.isfinite(offset_s):
            query |= {"offset_s": f"{offset_s:.6f}", "error_s": f"{error_s:.6f}"}
        return query

    def _take(self, reply: Reply) -> int:
        """Replace the orders by those of an answer; returns their version."""
        orders = orders_of(reply.data)
        self._learn(reply, orders)
        with self._changed:
            known = dict(self._spool.known())
            self._pending.replace(orders.assignments)
            self._changed.notify()
        for key, (task, why) in orders.strange.items():
            if key not in known:
                _log.warning("assignment %s cannot be understood: %s", key, why)
                now = time.time()
                self._ended(Result(key, task, now, now, error=why[:500]), self._broker_now())
        return orders.version

    def _learn(self, reply: Reply, stamps: Orders | Receipt) -> None:
        with self._changed:
            self._clock.learn(reply.requested_at, stamps.received, stamps.sent, reply.answered_at)

    # -- beginning runs ----------------------------------------------------------------------

    def _keep_beginning(self) -> None:
        while not self._halt.is_set():
            with self._changed:
                due, late = self._pending.take(self._broker_now())
                if not due and not late:
                    at = self._clock.steady_at(self._pending.next_at())
                    self._changed.wait(min(max(0.0, at - since_boot()), _TICK_S))
                    continue
            for assignment in late:
                late_s = self._broker_now() - assignment.at
                self._refuse(assignment, f"too late: it was due {late_s:.1f} s ago")
            for assignment in due:
                self._begin(assignment)
            self._spool.forget(self._broker_now() - _KEEP_TAKEN_S)

    def _begin(self, assignment: Assignment) -> None:
        against = refusal(assignment, self._settings.limits, self._able, len(self._runs()))
        if against:
            self._refuse(assignment, against)
            return
        self._spool.begin(assignment, time.time())
        run = threading.Thread(target=self._run_one, args=(assignment,), daemon=True)
        with self._lock:
            self._running.add(run)
        run.start()

    def _run_one(self, assignment: Assignment) -> None:
        over = assignment.at + assignment.duration_s
        left_s = self._clock.steady_at(over) - since_boot()
        end = time.monotonic() + left_s
        result = self._carry_out(assignment, self._settings, end, self._halt, self._broker_now)
        if result.error:
            _log.warning("%s: %s", assignment.id, result.error)
        self._ended(result, over)
        with self._lock:
            self._running.discard(threading.current_thread())

    def _refuse(self, assignment: Assignment, why: str) -> None:
        _log.warning("%s: not done: %s", assignment.id, why)
        now = time.time()
        result = Result(assignment.id, assignment.task, now, now, error=why[:500])
        self._ended(result, assignment.at + assignment.duration_s)

    def _ended(self, result: Result, over: float) -> None:
        self._spool.end(result, over)
        self._to_send.set()

    # -- sending -----------------------------------------------------------------------------

    def _keep_sending(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._halt.is_set():
            self._to_send.wait()
            self._to_send.clear()
            try:
                while not self._halt.is_set() and self._send(MOST_RESULTS, _GRACE_S):
                    self._well("results")
                    pause_s = _FIRST_PAUSE_S
            except AdonError as error:
                self._complain("results", error)
                self._halt.wait(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
                self._to_send.set()

    def _send(self, most: int, timeout_s: float) -> bool:
        """Send waiting results; whether the broker took any. Raises AdonError."""
        waiting = self._spool.waiting(most, MOST_RESULT_BYTES)
        if not waiting:
            return False
        refused: dict[str, str] = {}
        accepted: frozenset[str] = frozenset()
        body = b'{"results": [' + b", ".join(text for _, text in waiting) + b"]}"
        try:
            reply = self._send_link.ask("results", timeout_s, body=body)
        except BrokerError as error:
            if error.code != "bad_request":
                raise
            if len(waiting) > 1:  # any of them spoils the others
                return self._send(1, timeout_s)
            refused = {waiting[0][0]: str(error)}
        else:
            receipt = receipt_of(reply.data)
            self._learn(reply, receipt)
            accepted, refused = receipt.accepted, receipt.refused
        for key, why in refused.items():
            _log.warning(
                "the broker does not accept the result of %s: %s", key, printable(why)[:300]
            )
        gone = {key for key, _ in waiting} & (accepted | set(refused))
        self._spool.taken(gone)
        return bool(gone)

    def _send_last(self) -> None:
        """Send the last results; those that cannot be sent stay on disk."""
        try:
            self._send(MOST_RESULTS, _LAST_POST_S)
        except AdonError as error:
            _log.info(
                "%d results stay in %s: %s", self._spool.unsent(), self._settings.state, error
            )
        finally:
            self._send_link.close()

    # -- within ------------------------------------------------------------------------------

    def _for_ever(self, work: Callable[[], None]) -> None:
        while not self._halt.is_set():
            try:
                work()
            except Exception:  # a fault of ours must not leave half an agent
                _log.exception("an error in the agent; it continues")
                self._halt.wait(_MOST_PAUSE_S)

    def _wake_at_halt(self) -> None:
        self._halt.wait()
        self._ask_link.close()
        self._to_send.set()
        with self._changed:
            self._changed.notify_all()

    def _runs(self) -> set[threading.Thread]:
        with self._lock:
            return set(self._running)

    def _broker_now(self) -> float:
        """-inf while it is not known: then nothing is due."""
        now = self._clock.now(since_boot())
        return now if math.isfinite(now) else -math.inf

    def _complain(self, what: str, error: AdonError) -> None:
        """Log a problem once, not at every attempt, and not for both connections."""
        trouble = error.code if error.code == "unreachable" else str(error)
        with self._lock:
            new = trouble not in self._troubles.values()
            self._troubles[what] = trouble
        if new and not self._halt.is_set():
            _log.warning("%s", printable(str(error))[:1000])

    def _well(self, what: str) -> None:
        with self._lock:
            better = self._troubles.pop(what, None) is not None and not self._troubles
        if better:
            _log.info("the broker answers again")


@contextmanager
def following(settings: AgentSettings) -> Iterator[None]:
    """Follow the workflows of the settings meanwhile, and report them to the broker. Raises
    InputError."""
    if not settings.workflows:
        yield
        return
    token = None if settings.tls.certificate else settings.token
    sink = BrokerSink(settings.broker, token, settings.tls)
    requests = BrokerRequests(settings.broker, token, settings.tls)
    service = FollowService(sink, settings.workflows, time.time, requests=requests)
    requests.start()
    service.start()
    try:
        yield
    finally:
        requests.stop()
        service.stop()
