"""One turn: look, decide, act, and tell why."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from condor_plugins.pool.cloud.protocol import BackOff, Cloud, CloudError, Refusal, Server
from condor_plugins.pool.expander.condor import Condor
from condor_plugins.pool.expander.decision import PoolDecision, boot, key, machine_lifetime
from condor_plugins.pool.expander.demand import Demands, PoolDemand
from condor_plugins.pool.expander.observation import PoolObserver, View
from condor_plugins.pool.fitness import Judge
from condor_plugins.pool.leases import METRIC, leases_of
from condor_plugins.pool.run_times import RunTimes
from condor_plugins.pool.scaling import Limits, MachineState, is_lost, plan
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import AdonError

_DAY_S, _HOUR_S = 86_400.0, 3600.0
_AT_ONCE = 8  # requests
_NAMES = 5  # in a line


class Expander:
    """Makes a pool larger and smaller.

    :param pool: names its machines.
    :param reported: what they advertise by their settings.
    :param archive: where leases, run times, boots and costs are read.
    :param record: keeps what is measured; raises nothing.
    :param say: takes a line for people.
    """

    def __init__(
        self,
        pool: str,
        reported: Mapping[str, Any],
        limits: Limits,
        cloud: Cloud,
        condor: Condor,
        archive: Archive,
        run_times: RunTimes,
        record: Callable[[Sequence[Measurement]], object],
        say: Callable[[str], None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._pool, self._limits, self._clock = pool, limits, clock or time.time
        self._cloud, self._condor, self._archive = cloud, condor, archive
        self._record, self._say = record, say
        ticks = clock or time.monotonic
        self._look = PoolObserver(pool, reported, cloud, condor, archive, run_times, say, ticks)
        self._judge = Judge()
        self._demands = Demands(condor.whole, run_times.of_job)
        self._back_off = BackOff()
        self._there: frozenset[str] = frozenset()  # servers at the last look
        self._broken: frozenset[str] = frozenset()
        self._unfit: frozenset[str] = frozenset()
        self._deleted: frozenset[str] = frozenset()  # which is asked again until they are gone
        self._reported: tuple[str, ...] = ()

    def run_cycle(self, dry_run: bool = False) -> PoolDecision:
        """Look and decide, and act unless it is a ``dry_run``. Raises AdonError if it cannot be
        seen what there is: then nothing is done."""
        now = self._clock()
        view = self._look.at(now)
        leases = leases_of(self._archive.latest(METRIC).values(), now)
        wanted = self._demands.at(view, leases)
        view, unused = self._fit(view, wanted)
        self._update_back_off(view)
        scaling_plan = plan(wanted.jobs, view.machines, view.flavours, self._limits_now(view), now)
        states = Counter(machine.state.value for machine in view.supply.machines)
        states.update(unfit=len(self._judge.unfit))
        over, old = view.supply.over, view.supply.old
        scaling_plan = replace(
            scaling_plan,
            drain=(*scaling_plan.drain, *old),
            why={**scaling_plan.why, **unused, **old},
        )
        delete = {name: why for name, why in over.items() if name not in self._deleted}
        self._deleted = frozenset((*over, *scaling_plan.give_up))
        decision = PoolDecision(
            now, scaling_plan, delete, wanted.counts,
            {**+states, "own": len(view.own)}, view.matched,
        )  # fmt: skip
        if dry_run:
            return decision
        decision = replace(decision, failed=tuple(self._act(view, decision)))
        self._record_decision(decision)
        return decision

    def end(self) -> None:
        """Take back what the collector was told. Raises AdonError."""
        self._condor.forget_flavours(self._pool)

    def _fit(self, view: View, wanted: PoolDemand) -> tuple[View, Mapping[str, str]]:
        """Without the machines that jobs cannot use, of which ours must be drained; and why
        others, and cores, are not counted."""
        judged = self._judge.of(
            view.machines, view.holes, view.ads, wanted.waiting, view.lives, wanted.jobs, view.now
        )
        ours = {machine.name: machine for machine in view.supply.machines}
        unfit = {name: why for name, why in judged.unfit.items() if name in ours}
        for name in unfit.keys() - self._unfit:
            self._back_off.failed(ours[name].flavour.name, view.now)
        for name in view.supply.early - self._unfit:
            self._back_off.failed(view.servers[name].flavour, view.now, once_is_chance=True)
        self._unfit = frozenset((*unfit, *view.supply.early))
        drain = {n: why for n, why in unfit.items() if ours[n].state is MachineState.RUNNING}
        supplied = replace(
            view.supply,
            machines=tuple(m for m in judged.machines if m.name in ours),
            old={**view.supply.old, **drain},
        )
        whys: dict[str, str] = {}
        if others := {n: why for n, why in judged.unfit.items() if n not in ours}:
            name, why = next(iter(others.items()))
            more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
            whys["not counted"] = f"{name}{more}: {why}"
        if judged.partly:
            names = ", ".join(list(judged.partly)[:_NAMES])
            more = ", …" if len(judged.partly) > _NAMES else ""
            count = sum(judged.partly.values())
            whys["idle cores"] = f"{count} that no waiting job can have, on {names}{more}"
        own = [machine for machine in judged.machines if machine.name not in ours]
        return replace(view, supply=supplied, own=own), whys

    def _update_back_off(self, view: View) -> None:
        """How well the cloud does."""
        for server in view.unlisted:
            missing = f"{server.name} was accepted, and is not among the machines that it lists"
            self._back_off.refused(server.flavour, CloudError(missing, Refusal.REFUSED), view.now)
            self._say(f"no {server.flavour} for an hour: {missing}")
        if self._there - view.servers.keys():
            self._back_off.room()
        broken = {n for n, server in view.servers.items() if server.state is MachineState.ERROR}
        broken |= {machine.name for machine in view.supply.machines if is_lost(machine, view.now)}
        for name in broken - self._broken:
            self._back_off.broke(view.servers[name].flavour, view.now)
        for name in view.supply.boots:
            self._back_off.joined(view.servers[name].flavour)
        for name, up in view.worked.items():
            self._back_off.worked(view.servers[name].flavour, up)
        self._there, self._broken = frozenset(view.servers), frozenset(broken)

    # -- limits ----------------------------------------------------------------------------------

    def _limits_now(self, view: View) -> Limits:
        """Machines that leave are there until they are gone, and cost."""
        limits, kinds = self._limits, {flavour.name: flavour for flavour in view.flavours}
        leaving = [kinds[server.flavour] for server in view.leaving if server.flavour in kinds]
        return replace(
            limits,
            cores=limits.cores - sum(kind.cores for kind in leaving),
            machines=limits.machines - len(view.leaving),
            spent_today=0.0 if math.isinf(limits.money_per_day) else self._spent(view),
            back_off=self._back_off.of(kinds),
        )

    def _spent(self, view: View) -> float:
        """Since midnight (UTC)."""
        midnight = view.now - view.now % _DAY_S
        prices = {flavour.name: flavour.price for flavour in view.flavours}
        cost = {
            key("machine", self._pool, name): max(0.0, view.now - max(midnight, server.since))
            * prices.get(server.flavour, 0.0)
            for name, server in view.servers.items()
        }
        for measurement in self._archive.query("machine", since=midnight):
            price = measurement.details.get("price")
            if measurement.id.startswith(key("machine", self._pool, "")):
                per_hour = price if isinstance(price, int | float) else 0.0
                cost[measurement.id] = min(measurement.value, measurement.at - midnight) * per_hour
        return sum(cost.values()) / _HOUR_S

    # -- acting ----------------------------------------------------------------------------------

    def _act(self, view: View, decision: PoolDecision) -> list[str]:
        """What was refused, as text."""
        scaling_plan, slots = decision.plan, view.slots
        over = {
            **view.supply.over,
            **{n: scaling_plan.why.get(n, "") for n in scaling_plan.give_up},
        }
        self._remember(view, over)
        acts: list[tuple[str, Callable[[], None]]] = []
        for name in view.supply.dead:
            acts.append((name, partial(self._vacate_and_forget, name, view.jobs_of.get(name, ()))))
        acts += [(name, partial(self._cloud.delete, name)) for name in over]
        for name in scaling_plan.drain:
            acts.append(
                (name, partial(self._drain, name, slots[name], scaling_plan.why[name], view.now))
            )
        acts += [(name, partial(self._keep, name, slots[name])) for name in scaling_plan.keep]
        acts.append(("offline ads", partial(self._condor.advertise, view.offered.values())))
        names = [name for name, _ in acts]
        errors = _together(act for _, act in acts)
        failed = [f"{n}: {error}" for n, error in zip(names, errors, strict=True) if error]
        for flavour, count in scaling_plan.start.items():
            failed += self._start(flavour, count, view.now)
        return failed

    def _vacate_and_forget(self, name: str, jobs: Iterable[Mapping[str, object]]) -> None:
        self._condor.vacate(jobs)
        self._condor.forget(name)  # only then: by its slot its jobs are known

    def _drain(self, name: str, slot: str, why: str, now: float) -> None:
        self._condor.drain(slot, why)
        self._look.drains(name, now)

    def _keep(self, name: str, slot: str) -> None:
        self._condor.keep(slot)
        self._look.kept(name)

    def _start(self, flavour: str, count: int, now: float) -> list[str]:
        """A few at once, until the cloud has enough."""
        while count:
            names = [f"{self._pool}-{secrets.token_hex(4)}" for _ in range(min(count, _AT_ONCE))]
            errors = _together(partial(self._cloud.start, flavour, name) for name in names)
            for name, error in zip(names, errors, strict=True):
                if error is None:
                    asked_at = self._clock()  # requests may have taken their time
                    self._look.accepted(Server(name, flavour, MachineState.BOOTING, asked_at))
                    count -= 1
            for error in filter(None, errors):
                if isinstance(error, CloudError):
                    self._back_off.refused(flavour, error, now)
                return [f"{count} {flavour} not started: {error}"]
        return []

    # -- telling ---------------------------------------------------------------------------------

    def _remember(self, view: View, over: Mapping[str, str]) -> None:
        """Before anything is deleted: what it has cost is not to be found out later."""
        prices = {flavour.name: flavour.price for flavour in view.flavours}
        measurements = []
        for name, took_s in view.supply.boots.items():
            measurements.append(
                boot(self._pool, name, view.servers[name].flavour, took_s, view.now)
            )
        for name, why in over.items():
            server = view.servers[name]
            if server.flavour:  # else it was no more than a port
                lived_s, price = view.now - server.since, prices.get(server.flavour, 0.0)
                measurements.append(
                    machine_lifetime(
                        self._pool, name, server.flavour, max(0.0, lived_s), price, why, view.now
                    )
                )
        if measurements:
            self._record(measurements)

    def _record_decision(self, decision: PoolDecision) -> None:
        """Records it where something is done, or something else is in the way than before."""
        messages = (*sorted(decision.in_the_way), *decision.failed)
        if decision.acts or (messages and messages != self._reported):
            self._say(decision.reason)
            self._record([decision.as_measurement(self._pool)])
        self._reported = messages


def _together(acts: Iterable[Callable[[], None]]) -> list[AdonError | None]:
    """Does them side by side; the error of each."""

    def tried(act: Callable[[], None]) -> AdonError | None:
        try:
            act()
        except AdonError as error:
            return error
        return None

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(tried, acts))
