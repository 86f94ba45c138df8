"""From an assignment to its result: the probe that it names, within its time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import ip_address

from monitors.base.measurement import Measurement
from monitors.measurements.agent.messages import Assignment, Result
from monitors.measurements.agent.settings import AgentSettings
from monitors.measurements.probes import delays, echo, hostload, iperf, ping, programs, trace
from monitors.measurements.probes.probe import Halt, ProbeError, ProbeRequest, Reading
from monitors.measurements.probes.tools import TOOLS
from network_provisioner.base.errors import AdonError, printable

_log = logging.getLogger(__name__)
_MOST_ERROR = 500  # characters of it


def able(settings: AgentSettings) -> dict[str, str]:
    """Why each tool cannot be used here, "" where it can."""
    iperf3 = "" if programs.find(iperf.PROGRAM) else "iperf3 is not installed"
    lacking = {"tcp": iperf3, "udp": iperf3}
    if not settings.commands:
        lacking["command"] = "no commands are configured"
    return {tool: lacking.get(tool, "") for tool in TOOLS}


def order_of(
    assignment: Assignment, settings: AgentSettings, end: float, halt: Halt
) -> ProbeRequest:
    """The assignment as a probe takes it; ``end`` is monotonic seconds."""
    key = str(assignment.options.get("key", ""))
    bind = settings.bind
    if bind and assignment.peer:  # what is of the other family cannot be used
        bind = bind if ip_address(bind).version == ip_address(assignment.peer).version else ""
    return ProbeRequest(
        tool=assignment.tool,
        role=assignment.role,
        end=end,
        peer=assignment.peer,
        port=assignment.port,
        options=assignment.options,
        bind=bind,
        most_bps=settings.limits.rate_bps,
        secret=bytes.fromhex(key) if key else assignment.id.encode(),
        halt=halt,
    )


def measure(order: ProbeRequest, assignment: Assignment, settings: AgentSettings) -> list[Reading]:
    """Use the tool. Raises ProbeError."""
    own_error_s = settings.clock_error_s
    error_s = delays.clock_error_s() if own_error_s is None else own_error_s
    probes: Mapping[tuple[str, str], Callable[[], list[Reading]]] = {
        ("tcp", "client"): lambda: iperf.client(order),
        ("udp", "client"): lambda: iperf.client(order),
        ("tcp", "server"): lambda: iperf.server(order),
        ("udp", "server"): lambda: iperf.server(order),
        ("echo", "client"): lambda: echo.client(order, error_s, settings.limits.clocks_error_s),
        ("echo", "server"): lambda: echo.server(order, error_s),
        ("ping", "alone"): lambda: ping.measure(order),
        ("trace", "alone"): lambda: trace.measure(order),
        ("host", "alone"): lambda: hostload.measure(order),
        ("command", "alone"): lambda: programs.measure_by_command(
            order, settings.commands, assignment.subject
        ),
    }
    probe = probes.get((order.tool, order.role))
    if probe is None:
        raise ProbeError(f"there is no {order.tool} as {order.role}")
    return probe()


def perform(
    assignment: Assignment,
    settings: AgentSettings,
    end: float,
    halt: Halt,
    now: Callable[[], float] = time.time,
) -> Result:
    """Do it until ``end`` (monotonic seconds), and say what came of it: never raises. ``now`` is
    the broker's time, as far as it is known: measurements bear it."""
    started = time.time()
    measurements: tuple[Measurement, ...] = ()
    error = ""
    try:
        findings = measure(order_of(assignment, settings, end, halt), assignment, settings)
        measurements = tuple(_measurement(f, assignment, settings.name, now()) for f in findings)
    except AdonError as refused:
        error = str(refused)
    except Exception as fault:  # one probe's fault must not end the agent
        _log.exception("%s failed", assignment.id)
        error = f"an error in the agent: {type(fault).__name__}: {fault}"
    done = Result(assignment.id, assignment.task, started, time.time(), measurements)
    return replace(done, error=printable(error)[:_MOST_ERROR])


def _measurement(finding: Reading, assignment: Assignment, name: str, at: float) -> Measurement:
    return Measurement(
        id=f"{finding.metric}:{assignment.id}",
        metric=finding.metric,
        subject=assignment.subject,
        value=finding.value,
        unit=finding.unit,
        at=at,
        source=f"agent:{name}",
        details=dict(finding.details),
    )
