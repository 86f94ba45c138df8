"""Looks for small workflows and platforms on which ADON's mapping takes longer than a built-in's.

In the manner of PISA (Coleman, Krishnamachari 2024, "PISA: an adversarial approach to comparing
task graph scheduling algorithms"): simulated annealing over problems, a step changing one weight of
the workflow or the platform, or one edge. Estimates are true, so whatever is lost is lost by
the mapping: the model that it trusts is not what the simulator does, or the search was too short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from site_selector.evaluation.cases import BUILT_IN, OURS, adon, peers
from site_selector.evaluation.traces import Task, Trace, build_trace
from site_selector.evaluation.worlds import (
    LINK_BPS,
    SPEED,
    Platform,
    Staging,
    draw_links,
    log_uniform,
    simulator,
    true_problem,
)

# Ranges in which everything matters: few workers, so that tasks wait for each other, and queues and
# moves that take about as long as tasks do.
TASKS = (4, 12)
SITES = (2, 4)
WORKERS = (1, 4)
RUNTIME_S = (10.0, 1000.0)
SIZE_BYTES = (1e6, 1e11)
QUEUE_S = (0.1, 300.0)
_EDGES = 0.35  # share of possible edges that a workflow starts with
_RAW = 0.5  # share of tasks that read inputs of the workflow
_DRAWS = 10  # puzzles at first, the worst of which the search starts from
_WARMTH = 0.1  # of the ratio, at first
_STEP = 1.0  # typical change of a weight, in powers of e
_WEIGHTS = (("workers", WORKERS), ("speed", SPEED), ("queue_s", QUEUE_S))
FORMAT = "adon-site-puzzles/1"


@dataclass(frozen=True, slots=True)
class FileEdge:
    """A file from a task to a later one; ``source`` -1: an input of the workflow."""

    source: int
    target: int
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A workflow of tasks in order, with files between them, on a platform. Every task also writes
    a result of ``result_bytes`` that is wanted at the store."""

    runtime_s: tuple[float, ...]
    result_bytes: tuple[float, ...]
    edges: tuple[FileEdge, ...]
    platform: Platform

    def trace(self) -> Trace:
        """As a trace; every task is of a kind of its own."""
        reads: list[list[str]] = [[] for _ in self.runtime_s]
        writes = [[f"result{i}"] for i in range(len(self.runtime_s))]
        sizes = {f"result{i}": size for i, size in enumerate(self.result_bytes)}
        for edge in self.edges:
            name = f"file{edge.source}to{edge.target}" if edge.source >= 0 else f"in{edge.target}"
            sizes[name] = edge.size_bytes
            reads[edge.target].append(name)
            if edge.source >= 0:
                writes[edge.source].append(name)
        tasks = [
            Task(f"task{i}", f"kind{i}", (), (), tuple(reads[i]), tuple(writes[i]), seconds)
            for i, seconds in enumerate(self.runtime_s)
        ]
        return build_trace("puzzle", tasks, sizes)


@dataclass(frozen=True, slots=True)
class JudgedPuzzle:
    """A puzzle, makespans by policy in seconds, and ours ÷ the best built-in's."""

    puzzle: Puzzle
    makespan_s: dict[str, float]
    ratio: float


def judge(puzzle: Puzzle, staging: Staging = "per-site") -> JudgedPuzzle:
    """Map the puzzle with ADON and with every built-in, and execute the mappings."""
    trace = puzzle.trace()
    truth = true_problem(trace, puzzle.platform, staging)
    run = simulator(truth)
    mappings = peers(truth, "puzzle 0")
    mappings[OURS] = adon(truth, trace.kinds, "exact", 0.0, 0).assignment
    makespan = {name: run.makespan(mapping) for name, mapping in mappings.items()}
    best = min(makespan[name] for name in BUILT_IN)
    return JudgedPuzzle(puzzle, makespan, makespan[OURS] / best if best > 0 else 1.0)


def search(
    seed: int,
    steps: int,
    staging: Staging = "per-site",
    done: Callable[[int], None] = lambda _count: None,
) -> JudgedPuzzle:
    """The worst that ``steps`` steps of annealing meet, from a puzzle that ``seed`` stands for."""
    rng = Random(f"adversary {seed}")
    drawn = (judge(draw_puzzle(rng), staging) for _ in range(_DRAWS))
    here = worst = max(drawn, key=lambda judged: judged.ratio)
    for step in range(steps):
        trial = judge(changed_puzzle(here.puzzle, rng), staging)
        warmth = _WARMTH * (1 - step / steps)
        better = trial.ratio >= here.ratio
        if better or (warmth > 0 and rng.random() < math.exp((trial.ratio - here.ratio) / warmth)):
            here = trial
        if here.ratio > worst.ratio:
            worst = here
        done(step + 1)
    return worst


def draw_puzzle(rng: Random) -> Puzzle:
    """Any small workflow on any small platform."""
    n, sites = rng.randint(*TASKS), rng.randint(*SITES)
    store = rng.randrange(sites + 1)
    links = draw_links(rng, max(sites, store + 1))
    edges = [
        FileEdge(a, b, log_uniform(rng, *SIZE_BYTES))
        for b in range(n)
        for a in range(b)
        if rng.random() < _EDGES
    ]
    edges += [
        FileEdge(-1, b, log_uniform(rng, *SIZE_BYTES)) for b in range(n) if rng.random() < _RAW
    ]
    return Puzzle(
        tuple(log_uniform(rng, *RUNTIME_S) for _ in range(n)),
        tuple(log_uniform(rng, *SIZE_BYTES) for _ in range(n)),
        tuple(edges),
        Platform(
            tuple(f"site{i}" for i in range(sites)),
            tuple(round(log_uniform(rng, *WORKERS)) for _ in range(sites)),
            tuple(log_uniform(rng, *SPEED) for _ in range(sites)),
            tuple(log_uniform(rng, *QUEUE_S) for _ in range(sites)),
            links,
            store,
        ),
    )


def changed_puzzle(puzzle: Puzzle, rng: Random) -> Puzzle:
    """The puzzle with one thing different."""
    if rng.random() < 0.5:
        return replace(puzzle, platform=_other_platform(puzzle.platform, rng))
    job = rng.randrange(len(puzzle.runtime_s))
    choice = rng.randrange(4)
    if choice == 0:
        return replace(puzzle, runtime_s=_at(puzzle.runtime_s, job, RUNTIME_S, rng))
    if choice == 1:
        return replace(puzzle, result_bytes=_at(puzzle.result_bytes, job, SIZE_BYTES, rng))
    edges = puzzle.edges
    if choice == 2 and edges:
        i = rng.randrange(len(edges))
        other = replace(edges[i], size_bytes=_step(edges[i].size_bytes, SIZE_BYTES, rng))
        return replace(puzzle, edges=(*edges[:i], other, *edges[i + 1 :]))
    return replace(puzzle, edges=_rewired(edges, len(puzzle.runtime_s), rng))


def _other_platform(platform: Platform, rng: Random) -> Platform:
    site = rng.randrange(len(platform.sites))
    choice = rng.randrange(4)
    if choice < len(_WEIGHTS):
        name, span = _WEIGHTS[choice]
        values: Any = _at(getattr(platform, name), site, span, rng)
        if name == "workers":
            values = tuple(max(1, round(n)) for n in values)
        return replace(platform, **{name: values})
    links = [list(row) for row in platform.link_bps]
    a, b = rng.sample(range(len(links)), 2)
    links[a][b] = links[b][a] = _step(links[a][b], LINK_BPS, rng)
    return replace(platform, link_bps=tuple(tuple(row) for row in links))


def _at(
    values: tuple[float, ...] | tuple[int, ...], i: int, span: tuple[float, float], rng: Random
) -> tuple[float, ...]:
    return (*values[:i], _step(values[i], span, rng), *values[i + 1 :])


def _step(value: float, span: tuple[float, float], rng: Random) -> float:
    low, high = span
    return min(high, max(low, value * math.exp(rng.gauss(0.0, _STEP))))


def _rewired(edges: tuple[FileEdge, ...], tasks: int, rng: Random) -> tuple[FileEdge, ...]:
    """One edge less, or one more."""
    target = rng.randrange(tasks)
    source = rng.randrange(-1, target)
    kept = tuple(e for e in edges if (e.source, e.target) != (source, target))
    if len(kept) < len(edges):
        return kept
    return (*kept, FileEdge(source, target, log_uniform(rng, *SIZE_BYTES)))


def as_dict(judged: Sequence[JudgedPuzzle], seed: int, steps: int, staging: str) -> dict[str, Any]:
    """What searches found, JSON-ready."""
    return {
        "format": FORMAT,
        "seed": seed,
        "steps": steps,
        "staging": staging,
        "found": [
            {"ratio": case.ratio, "makespan_s": case.makespan_s, "puzzle": asdict(case.puzzle)}
            for case in judged
        ],
    }


def rival(judged: JudgedPuzzle) -> tuple[str, float]:
    """The built-in that was best, and its makespan in seconds."""
    name = min(BUILT_IN, key=lambda who: (judged.makespan_s[who], who))
    return name, judged.makespan_s[name]
