"""Two machines with two routers and a long, narrow, lossy line between them. Inside a box only.

    a 10.78.1.2 -- 10.78.1.1 r1 10.78.9.1 ~~ line ~~ 10.78.9.2 r2 10.78.2.1 -- 10.78.2.2 b

Both reach this process, where the broker is, by lines of their own: 10.253.1.1 and 10.253.2.1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from adon.machine import box
from examples.testbed import delaylink, netns
from examples.testbed.procs import Daemon, run

A, B, R1, R2 = "agents-a", "agents-b", "agents-r1", "agents-r2"
ADDRESS = {A: "10.78.1.2", B: "10.78.2.2"}
HUB = {A: "10.253.1.1", B: "10.253.2.1"}
ROUTE = ("10.78.1.1", "10.78.9.2", "10.78.2.2")
"""From a to b."""
RATE_BPS = 40e6
DELAY_S = 0.02
_ROOT = Path(__file__).resolve().parents[1]


class World:
    """The network, from entering to leaving."""

    def __init__(self, folder: Path) -> None:
        """``folder`` gets the line's log."""
        self._folder = folder
        self._undo = ExitStack()
        self._control = box.private_dir() / "agents-line.ctl"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def line(self, **settings: float | bool) -> dict[str, Any]:
        """Change the line: see :func:`examples.testbed.delaylink.control`."""
        return delaylink.control(self._control, **settings)

    def start(self, where: str, argv: Sequence[str], log: Path) -> Daemon:
        """A process on one of the machines, stopped at the end at the latest."""
        env = {**os.environ, "PYTHONPATH": str(_ROOT)}
        daemon = Daemon([*netns.execute(where), *argv], log, env=env)
        self._undo.callback(daemon.stop)
        return daemon

    def adon(
        self, where: str, *words: str, under: Sequence[str] = (), timeout_s: float = 240.0
    ) -> str:
        """Run ``adon`` there to its end, started by ``under``; what it printed. Raises AdonError
        where it fails."""
        return run(
            [*netns.execute(where), *under, *adon_argv(), *words],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            timeout_s=timeout_s,
        )

    def _make(self) -> None:
        for name in (A, B, R1, R2):
            netns.add(name)
            self._undo.callback(netns.delete, name)
            netns.sysctl(name, netns.QUIET | netns.TCP_BUFFERS | {"net.ipv4.ip_forward": "1"})
        for number, (machine, router) in enumerate(((A, R1), (B, R2)), 1):
            self._managed(machine, number)
            device = f"lan{number}"
            netns.batch(
                machine,
                [
                    f"link add dp0 type veth peer name {device} netns {router}",
                    f"addr add {ADDRESS[machine]}/24 dev dp0",
                    "link set dp0 up",
                ],
            )
            own = ADDRESS[machine].rpartition(".")[0] + ".1"
            netns.batch(router, [f"addr add {own}/24 dev {device}", f"link set {device} up"])
            netns.batch(machine, [f"route add 10.78.0.0/16 via {own}"])
        self._line()

    def _managed(self, machine: str, number: int) -> None:
        netns.batch(
            None,
            [
                f"link add agents{number} type veth peer name mgmt0 netns {machine}",
                f"addr add {HUB[machine]}/30 dev agents{number}",
                f"link set agents{number} up",
            ],
        )
        self._undo.callback(netns.batch, None, [f"link del agents{number}"])
        netns.batch(machine, [f"addr add 10.253.{number}.2/30 dev mgmt0", "link set mgmt0 up"])

    def _line(self) -> None:
        limit_bytes = RATE_BPS * 2 * DELAY_S / 8
        words = [sys.executable, "-m", delaylink.__name__, "wan-a", "wan-b"]
        words += ["--rate-bps", f"{RATE_BPS:.0f}", "--delay-s", str(DELAY_S)]
        words += ["--limit-bytes", f"{limit_bytes:.0f}", "--control", str(self._control)]
        daemon = Daemon(
            [*netns.execute(R1), *words],
            self._folder / "line.log",
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        self._undo.callback(daemon.stop)
        daemon.wait(lambda: delaylink.answers(self._control))
        up = "txqueuelen 10000 up"
        netns.batch(R1, [f"link set wan-b netns {R2}", "addr add 10.78.9.1/30 dev wan-a"])
        netns.batch(R1, [f"link set wan-a {up}", "route add 10.78.2.0/24 via 10.78.9.2"])
        netns.batch(R2, ["addr add 10.78.9.2/30 dev wan-b", f"link set wan-b {up}"])
        netns.batch(R2, ["route add 10.78.1.0/24 via 10.78.9.1"])


def adon_argv() -> list[str]:
    """The command ``adon`` of this checkout."""
    return [sys.executable, "-c", "import sys; from adon.cli.main import main; sys.exit(main())"]
