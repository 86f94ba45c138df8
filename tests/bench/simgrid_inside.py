"""Inside Debian's Python, which has SimGrid: plays mappings through, one JSON line each.

The rules are those of HTCondor, DAGMan and Pegasus, written anew and not read off ADON's simulator;
only ``site_selector/mapping/estimator.py``'s text says what they are. Jobs, stage jobs and
transfers are actors, sites are hosts with a core per worker, and the network is SimGrid's.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

_ONE_MOMENT = 1e-9  # of a second, far below what anything takes


class World:
    """One mapping under way."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.site: list[int] = case["site"]
        self.place: list[int] = case["place"]
        self.fetches: list[bool] = case["fetches"]
        self.waiting = [len(above) for above in case["parents"]]
        self.missing = [0] * len(self.site)
        self.free = list(case["workers"])
        self.queues: list[list[tuple[int, int, int]]] = [[] for _ in self.free]
        self.came = 0
        self.finished_s = 0.0
        self.at: set[tuple[int, int]] = set()  # files on their way to a place, or there
        self.users: dict[tuple[int, int], list[int]] = {}  # jobs that wait for a file at a place
        # By reader: what its stage job brings from elsewhere, and how much is not written yet.
        self.inter: list[list[tuple[int, int]]] = [[] for _ in self.site]
        self.inter_left = [0] * len(self.site)
        # By bundle and place: files that a stage-out job takes back, and jobs that it waits for.
        self.out: dict[tuple[tuple[int, int], int], list[int]] = {}
        self.out_left: dict[tuple[tuple[int, int], int], int] = {}
        self.bundle = list(self._bundles())
        engine = Engine([sys.argv[0], "--log=root.thres:critical", *case["options"]])
        zone = NetZone.create_full_zone("world")
        self.hosts = []
        for place in range(len(case["bytes_per_s"])):
            host = zone.create_host(f"place{place}", 1.0)
            if place < len(self.free):
                host.core_count = self.free[place]
            self.hosts.append(host)
        self._connect(zone)
        zone.seal()
        self.engine = engine

    def _connect(self, zone: Any) -> None:
        """A link per path, and one more that paths of the same line share."""
        rates, line = self.case["bytes_per_s"], self.case["line"]
        paths = [(a, b) for a in range(len(rates)) for b in range(len(rates)) if a != b]
        fastest: dict[int, float] = {}
        for a, b in paths if line else ():
            fastest[line[a][b]] = max(fastest.get(line[a][b], 0.0), rates[a][b])
        fastest.pop(-1, None)
        shared = {number: self._link(zone, f"line{number}", fastest[number]) for number in fastest}
        for a, b in paths:
            links = [self._link(zone, f"link{a}-{b}", rates[a][b])]
            if line and line[a][b] in shared:
                links.append(shared[line[a][b]])
            ends = self.hosts[a].netpoint, self.hosts[b].netpoint
            zone.add_route(*ends, None, None, [LinkInRoute(link) for link in links], False)

    def _link(self, zone: Any, name: str, bytes_per_s: float) -> Any:
        link = zone.create_link(name, bytes_per_s)
        link.seal()
        return link

    def _bundles(self) -> Iterator[tuple[int, int]]:
        """Level and number of the stage job of each job: one for ten, taken in turn."""
        count: dict[int, int] = {}
        for level in self.case["level"]:
            count[level] = count.get(level, 0) + 1
        turn = dict.fromkeys(count, 0)
        for level in self.case["level"]:
            yield level, turn[level] % math.ceil(count[level] / 10)
            turn[level] += 1

    def begin(self) -> None:
        """The first actor: stage-in jobs go, jobs without parents and inputs wait."""
        case = self.case
        by_level = sorted(
            range(len(self.site)), key=lambda job: (case["level"][job], case["turn"][job])
        )
        loads: dict[tuple[Any, int, int], list[int]] = {}
        for job in by_level:
            for file in case["reads"][job]:
                writer, to = case["producer"][file], self.place[job]
                if file in case["bypassed"][job]:
                    continue
                if writer >= 0:
                    self.inter_left[job] += self.place[writer] != to
                elif to not in case["holders"][file]:
                    self.expect(job, file, to)
                    source = self.nearest(case["holders"][file], to)
                    if self.fetches[job]:
                        self.start(self.move, source, to, [file], [job])
                    elif (file, to) not in self.at:
                        self.at.add((file, to))
                        loads.setdefault((self.bundle[job], source, to), []).append(file)
            returns = any(case["returns"][file] for file in case["writes"][job])
            if returns and not self.fetches[job]:
                key = (self.bundle[job], self.place[job])
                self.out_left[key] = self.out_left.get(key, 0) + 1
        for (_, source, to), files in loads.items():
            self.start(self.move, source, to, files, None)
        for job in range(len(self.site)):
            self.ready(job)

    def nearest(self, holders: list[int], to: int) -> int:
        return max(holders, key=lambda place: self.case["bytes_per_s"][place][to])

    def expect(self, job: int, file: int, to: int) -> None:
        self.missing[job] += 1
        if not self.fetches[job]:
            self.users.setdefault((file, to), []).append(job)

    def start(self, work: Any, *arguments: Any) -> None:
        Actor.create("work", self.hosts[0], work, *arguments)

    def move(self, source: int, to: int, files: list[int], jobs: list[int] | None) -> None:
        """One transfer; ``jobs`` are those it is for, None all that wait for the files there."""
        self.send(source, to, files)
        for file in files:
            for job in self.users.pop((file, to), []) if jobs is None else jobs:
                self.missing[job] -= 1
                self.ready(job)

    def send(self, source: int, to: int, files: list[int]) -> None:
        if source != to and files:
            size = sum(self.case["size"][file] for file in files)
            Comm.sendto(self.hosts[source], self.hosts[to], round(size))
            self.ended()

    def bring(self, job: int) -> None:
        """All that a job with a worker brings itself: what is staged elsewhere or bypasses that."""
        here, place = self.site[job], self.place[job]
        files: dict[int, list[int]] = {}
        for file in self.case["reads"][job]:
            holders = self.case["holders"][file]
            if file not in self.case["bypassed"][job]:
                source = place
            else:
                source = here if here in holders else self.nearest(holders, here)
            files.setdefault(source, []).append(file)
        files.pop(here, None)
        Comm.wait_all(
            [
                Comm.sendto_async(
                    self.hosts[source],
                    self.hosts[here],
                    round(sum(map(self.case["size"].__getitem__, group))),
                )
                for source, group in files.items()
            ]
        )
        self.ended()

    def ended(self) -> None:
        self.finished_s = max(self.finished_s, Engine.clock)

    def ready(self, job: int) -> None:
        if self.waiting[job] == 0 and self.missing[job] == 0:
            self.waiting[job] = -1
            self.came += 1
            self.start(self.wait, job, self.came)

    def wait(self, job: int, came: int) -> None:
        """In the site's queue, then for a worker."""
        here = self.site[job]
        this_actor.sleep_for(self.case["queue_s"][here])
        heapq.heappush(self.queues[here], (-self.case["priority"][job], came, job))
        self.dispatch(here)

    def dispatch(self, here: int) -> None:
        # What happens at the same moment comes first, so that the most urgent job goes first.
        this_actor.sleep_for(_ONE_MOMENT)
        while self.free[here] and self.queues[here]:
            self.free[here] -= 1
            job = heapq.heappop(self.queues[here])[2]
            Actor.create("job", self.hosts[here], self.compute, job)

    def compute(self, job: int) -> None:
        """With a worker, which the job also has while it moves what is staged elsewhere."""
        here, place = self.site[job], self.place[job]
        self.bring(job)
        this_actor.execute(self.case["compute_s"][job][here])
        self.ended()
        self.send(here, place, self.case["writes"][job])
        self.free[here] += 1
        self.hand_over(job, place)
        self.bring_back(job, place)
        for child in self.case["children"][job]:
            self.waiting[child] -= 1
            self.ready(child)
        self.dispatch(here)

    def hand_over(self, job: int, here: int) -> None:
        """What a job wrote goes to its readers' other places."""
        case = self.case
        readers = sorted(
            (case["level"][reader], case["turn"][reader], reader, file)
            for file in case["writes"][job]
            for reader in case["readers"][file]
        )
        for _, _, reader, file in readers:
            to = self.place[reader]
            if to == here:
                continue
            self.expect(reader, file, to)
            if self.fetches[reader]:
                self.start(self.move, here, to, [file], [reader])
                continue
            if (file, to) not in self.at:
                self.at.add((file, to))
                self.inter[reader].append((here, file))
            self.inter_left[reader] -= 1
            if self.inter_left[reader] == 0:
                for source in sorted({source for source, _ in self.inter[reader]}):
                    files = [f for s, f in self.inter[reader] if s == source]
                    self.start(self.move, source, to, files, None)

    def bring_back(self, job: int, here: int) -> None:
        """What the workflow wants goes to the output site."""
        case, output = self.case, self.case["output"]
        wanted = [file for file in case["writes"][job] if case["returns"][file]]
        if not wanted or output in (-1, here):
            return
        if self.fetches[job]:
            for file in wanted:
                self.start(self.move, here, output, [file], [])
            return
        key = (self.bundle[job], here)
        self.out.setdefault(key, []).extend(wanted)
        self.out_left[key] -= 1
        if self.out_left[key] == 0:
            self.start(self.move, here, output, self.out[key], [])

    def makespan(self) -> float:
        self.start(self.begin)
        self.engine.run()
        return self.finished_s


def main() -> None:
    """An engine lives once in a process, so each mapping has a process of its own."""
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, json.dumps(World(json.loads(line)).makespan()).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            print(answer.read() or "null", flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
