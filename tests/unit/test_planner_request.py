"""Reading what the planner plug-in asks: any text is a request or one clear line."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_world import config_file
from hypothesis import given, settings
from hypothesis import strategies as st

from adon.planner_request import answers
from adon.planning.placement import place
from network_provisioner.base.errors import InputError
from pegasus_hooks.plugin import command_text
from pegasus_hooks.plugin.inputs import inputs_of
from pegasus_hooks.plugin.request import parse_request
from site_selector.catalogs.hints import Hints
from site_selector.catalogs.replicas import find_replicas
from site_selector.estimates.estimating import estimate_world
from site_selector.inputs import size_note
from site_selector.mapping.kernels import compiled
from site_selector.mapping.reasons import range_text
from site_selector.problem import build_problem

COMMAND = [sys.executable, "-I", "-m", "adon.planner_request"]
SMALL: dict[str, Any] = {
    "adon": 1,
    "workflow": "w",
    "limit_s": 30.0,
    "data_configuration": "sharedfs",
    "output_sites": ["local"],
    "input_directories": [],
    "replica_files": [],
    "sites": [
        {"name": "local"},
        {"name": "mu", "profiles": {"adon.workers": "8", "runtime": "70"}},
        {"name": "tacc"},
    ],
    "transformations": [
        {"name": "t::a:1", "sites": ["mu", "tacc"], "runtimes": {"tacc": "60"}},
        {"name": "t::sub", "sites": []},
    ],
    "files": [
        {"lfn": "raw", "size": 1000, "places": [["tacc", "gsiftp://x/raw"]]},
        {"lfn": "mid", "size": 500},
        {"lfn": "end", "wanted": True},
    ],
    "jobs": [
        {"id": "j1", "transformation": 0, "reads": [0], "writes": [1]},
        {"id": "j2", "transformation": 0, "reads": [1], "writes": [2], "after": [0]},
        {"id": "s", "kind": "pegasusWorkflow", "transformation": 1, "site": "local", "after": [1]},
    ],
}


def small(**changed: Any) -> str:
    return json.dumps({**SMALL, **changed})


def read(text: str) -> Any:
    notes: list[str] = []
    return inputs_of(parse_request(text), lambda _: {}, notes.append), notes


def test_a_request_becomes_the_inputs_of_site_selection() -> None:
    inputs, notes = read(small())
    assert notes == []
    assert dict(inputs.candidates) == {
        "j1": ("mu", "tacc"), "j2": ("mu", "tacc"), "s": ("local",)
    }  # fmt: skip
    assert inputs.workflow.order == ("j1", "j2", "s")
    assert inputs.workflow.jobs["s"].site_hint == "local"
    assert (inputs.raw_bytes, inputs.places) == ({"raw": 1000}, {"raw": ("tacc",)})
    assert inputs.sites["mu"].hints.workers == 8
    # The site catalog's word for all that runs there, where the transformation catalog has none.
    program = inputs.transformations["t::a:1"]
    assert (program.runtime_at("mu"), program.runtime_at("tacc")) == (70.0, 60.0)
    assert [f.lfn for f in inputs.workflow.files.values() if f.stage_out] == ["end"]


def job(**more: Any) -> dict[str, Any]:
    return {"jobs": [{"id": "a", "transformation": 0, **more}]}


def site(**profiles: Any) -> dict[str, Any]:
    return {"sites": [{"name": "mu", "profiles": profiles}]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"adon": 2}, "found version 2, expected 1"),
        ({"adon": "1"}, "adon is '1', expected a whole number"),
        ({"jobs": []}, "found no jobs, expected at least one"),
        ({"jobs": [{}]}, "jobs[0]: id is nothing, expected a name"),
        ({"jobs": [{"id": "a"}]}, "transformation is -1, expected an index from 0 to 1"),
        (job(reads=[3]), "expected indices from 0 to 2"),
        (job(reads=[True]), "expected a list of indices"),
        (job(reads=[1, 1]), "expected each index once"),
        (job(runtime="10m"), "expected a number above 0"),
        (job(transformation=1), "job a can run at no site"),
        ({"jobs": [SMALL["jobs"][0]] * 2}, "job 'j1' is listed twice"),
        ({"files": [SMALL["files"][0]] * 3}, "file 'raw' is listed twice"),
        ({"files": [{"lfn": "x", "size": -1}]}, "files[0]: size is -1, expected 0 bytes or more"),
        ({"limit_s": 0}, "limit_s is 0.0, expected seconds above 0"),
        (site(**{"adon.workers": 8}), "expected an object of texts"),
        (
            {"jobs": [
                {"id": "a", "transformation": 0, "after": [1]},
                {"id": "b", "transformation": 0, "after": [0]},
            ]},
            "jobs form a cycle: a -> b -> a",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        read(small(**changed))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("adon.wokers", "8", "unknown key 'adon.wokers', did you mean 'adon.workers'?"),
        ("adon.workers", "-4", "adon.workers: found '-4', expected a whole number from 0 to"),
        ("adon.rtt.tac", "5 ms", "adon.rtt.tac names the unknown site 'tac', expected one of "),
    ],
)
def test_a_hint_that_is_wrong_is_warned_of_and_the_others_serve(
    key: str, value: str, words: str
) -> None:
    request, (warning,) = read(small(**site(**{key: value, "adon.rtt.tacc": "1 ms"})))
    assert warning.startswith("warning: site 'mu' of the site catalog: ")
    assert words in warning
    assert request.sites["mu"].hints == Hints(rtt_s={"tacc": 0.001})


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    places = [at]
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inner:
            places += paths(item, (*at, key))
    return places


PLACES = [path for path in paths(SMALL) if path]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def settled(text: str | bytes) -> None:
    """One of both: inputs, or one line."""
    try:
        request = parse_request(text)
        inputs_of(request, lambda _: {}, lambda _: None)
    except InputError as error:
        assert len(str(error)) < 2000


@settings(max_examples=80)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=3))
def test_anything_in_any_place_is_read_or_refused(changes: list[tuple[Any, Any]]) -> None:
    root = copy.deepcopy(SMALL)
    for path, value in changes:
        holder: Any = root
        for key in path[:-1]:
            try:
                holder = holder[key]
            except (KeyError, IndexError, TypeError):
                break
        else:
            with contextlib.suppress(KeyError, IndexError, TypeError):
                holder[path[-1]] = value
    settled(json.dumps(root))


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    settled(text)


def run(text: str | bytes) -> tuple[int, str, str]:
    data = text.encode() if isinstance(text, str) else text
    done = subprocess.run(COMMAND, input=data, capture_output=True, check=False, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_process_answers_every_job_and_says_when_that_was_all() -> None:
    code, out, err = run(small())
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for answer, end in ((lines[:3], "so far"), (lines[4:7], "end")):
        sites = dict(line.split("\t") for line in answer)
        assert (set(sites), sites["s"]) == ({"j1", "j2", "s"}, "local")
        assert lines[4 * (end == "end") + 3].startswith(f"{end}\t3\t")
    last = lines[-1]
    assert "a first mapping without search" in lines[3]
    word, count, policy, makespan = last.split("\t")
    assert (word, count) == ("end", "3")
    assert policy.endswith("; all at mu: 240 s")
    assert float(makespan) > 100


def test_the_first_answer_never_waits_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(compiled, "_state", type(compiled._state)())
    monkeypatch.setattr(compiled, "_is_warm", lambda: False)
    monkeypatch.setattr(compiled, "COLD_STEPS", 0)  # as where there are very many jobs
    monkeypatch.setattr(compiled, "_twin", late)
    stream = answers(parse_request(small()), lambda _: None)
    assert not next(stream).last
    with pytest.raises(AssertionError, match="compiled"):
        next(stream)


@pytest.mark.parametrize("text", [small(config="/nowhere/adon.yml"), b"\xff"])
def test_the_process_refuses_with_one_line_and_2(text: str | bytes) -> None:
    code, out, err = run(text)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_template_of_a_workflow_selects_its_sites(tmp_path: Path) -> None:
    qspec = {"min_throughput": "1 Mb/s"}
    for site in ("tacc", "mu"):
        rspec = {"sites": [site]}
        config = config_file(tmp_path, templates={"w": {"qspec": qspec, "rspec": rspec}})
        notes: list[str] = []
        *_, last = answers(parse_request(small(config=str(config))), notes.append)
        assert (last.sites["j1"], last.sites["j2"]) == (site, site)
        assert any(f"has jobs run at {site} alone" in line for line in notes)


def test_a_name_with_a_tab_is_escaped() -> None:
    jobs = [{"id": "a\tb\\\n", "transformation": 0}]
    code, out, _ = run(small(jobs=jobs))
    assert (code, out.splitlines()[0].split("\t")[0]) == (0, "a\\tb\\\\\\n")


# --- what is not said ----------------------------------------------------------------------------


def test_a_size_or_a_place_that_nobody_knows_is_guessed_with_a_note() -> None:
    files = [{"lfn": "raw"}, *SMALL["files"][1:]]
    inputs, notes = read(small(files=files))
    assert (inputs.raw_bytes, inputs.places) == ({"raw": 100_000_000}, {"raw": ("local",)})
    assert notes == ["no place is known of 1 of 1 inputs; taken as at local"]
    assert size_note(inputs) == (
        "no size is known of 1 of 1 inputs (raw): taken as 100 MB (a default, right to an order of "
        "magnitude)"
    )


@pytest.mark.parametrize(
    ("general", "program", "of_site", "own", "expected"),
    [
        ("nonsharedfs", "sharedfs", "condorio", "condorio", "sharedfs"),
        ("sharedfs", None, None, None, "sharedfs"),
        (None, None, "nonsharedfs", "sharedfs", "nonsharedfs"),
        (None, None, None, "sharedfs", "sharedfs"),
        (None, None, None, None, "condorio"),
    ],
)
def test_a_job_has_the_data_configuration_that_pegasus_gives_it_at_a_site(
    general: str | None,
    program: str | None,
    of_site: str | None,
    own: str | None,
    expected: str,
) -> None:
    profiles = {"data.configuration": of_site} if of_site else {}
    configured = {"pegasus.data.configuration": own} if own else {}
    inputs, _ = read(
        small(
            data_configuration=general,
            sites=[{"name": "mu", "profiles": profiles}, {"name": "tacc"}],
            transformations=[
                {
                    "name": "a",
                    "sites": ["mu", "tacc"],
                    "profiles": {"mu": {"pegasus.data.configuration": program}} if program else {},
                }
            ],
            jobs=[{"id": "x", "transformation": 0, "profiles": configured}],
        )
    )
    elsewhere = own or general or "condorio"
    assert inputs.configurations == {"x": (expected, elsewhere)}
    problem = build_problem(inputs, estimate_world(inputs, now=0.0))
    both = ((0, expected), (1, elsewhere))
    local = len(problem.places) - 1
    staged = tuple((s, local) for s, name in both if name == "condorio")
    assert problem.staged == ((staged,) if staged else ())


def test_a_tag_of_a_site_goes_before_its_other_profiles() -> None:
    profiles = {"data.configuration": "nonsharedfs"}
    tags = {"fast": {"data.configuration": "sharedfs"}}
    sites = [{"name": "mu", "profiles": profiles, "tags": tags}, {"name": "tacc"}]
    job = {"id": "x", "transformation": 0}

    def configuration(own: dict[str, str], sites: list[dict[str, Any]]) -> str:
        inputs, _ = read(small(sites=sites, jobs=[{**job, "profiles": own}]))
        return inputs.configuration("x", "mu")

    assert configuration({}, sites) == "nonsharedfs"
    assert configuration({"pegasus.tag": "fast"}, sites) == "sharedfs"
    sites[0] |= {"profiles": {**profiles, "tag": "fast"}}
    assert configuration({"pegasus.tag": "slow"}, sites) == "sharedfs"


@pytest.mark.parametrize(
    ("scratch", "more", "place"),
    [
        (None, {}, "tacc"),
        ("gsiftp://mu/scratch", {"properties": {"pegasus.integrity.checking": "none"}}, "tacc"),
        ("gsiftp://mu/scratch", {}, "tacc through local"),  # for its checksum
        (
            "scp://mu/scratch",
            {"properties": {"pegasus.integrity.checking": "none"}},
            "tacc through local",
        ),
    ],
)
def test_inputs_pass_through_the_submit_host_where_no_tool_moves_them_directly(
    scratch: str | None, more: dict[str, Any], place: str
) -> None:
    files = [{"lfn": "raw", "size": 1000, "places": [["tacc", "gsiftp://tacc/raw"]]}]
    sites = [{"name": site, "scratch": scratch} for site in ("mu", "tacc")]
    job = {"id": "x", "transformation": 0, "reads": [0]}
    general = {"data_configuration": "sharedfs", "sites": sites, "files": files, **more}
    assert read(small(jobs=[job], **general))[0].places == {"raw": (place,)}
    assert not read(small(jobs=[job], **general))[0].workflow.files["raw"].bypass
    files[0] |= {"checksum": True, "bypass": True}
    known = "tacc" if scratch is None or scratch.startswith("gsiftp") else place
    inputs = read(small(jobs=[job], **general))[0]
    assert inputs.places == {"raw": (known,)}
    assert inputs.workflow.files["raw"].bypass


def test_results_go_to_every_output_site() -> None:
    quick_start = {"adon.queue_wait": "0 s"}
    far = {"adon.bandwidth.far": "1 Mb/s"} | quick_start
    sites = [
        {"name": "local", "profiles": quick_start},
        {"name": "mu", "profiles": far},
        {"name": "tacc", "profiles": far},
        {"name": "far"},
    ]

    quick = {**SMALL["transformations"][0], "runtimes": {"mu": "1e-5", "tacc": "1e-5"}}

    def makespan(*outputs: str) -> float:
        known = {"sites": sites, "jobs": SMALL["jobs"][:2], "transformations": [quick]}
        request = parse_request(small(**known, output_sites=list(outputs)))
        *_, last = answers(request, lambda _: None)
        return last.makespan_s

    assert makespan() < makespan("far") / 2 and makespan("local") < makespan("far") / 2
    assert makespan("local", "far") == pytest.approx(makespan("far"), rel=0.05)


@pytest.mark.parametrize("outputs", [("local",), ("local", "far"), ("tacc", "local", "far")])
@pytest.mark.parametrize("configuration", ["sharedfs", None])
def test_the_planner_expects_what_site_map_expects(
    outputs: tuple[str, ...], configuration: str | None
) -> None:
    far = {"adon.bandwidth.far": "1 Mb/s", "adon.rate": "1 kB/s"}
    sites = [{"name": "local"}, {"name": "mu", "profiles": far}, {"name": "tacc"}, {"name": "far"}]
    text = small(sites=sites, output_sites=list(outputs), data_configuration=configuration)
    *_, last = answers(parse_request(text), lambda _: None)
    inputs, _ = read(text)
    mapping = place(inputs, output_site=",".join(outputs)).mapping
    assert last.makespan_s == pytest.approx(mapping.expected_s)
    expected = mapping.policy + range_text(mapping.forecast)
    assert (last.sites, last.policy.partition(";")[0]) == (mapping.sites, expected)


def test_what_fits_nowhere_is_told_and_planned() -> None:
    nobody = {"adon.workers": "0"}
    sites = [{"name": site, "profiles": nobody} for site in ("mu", "tacc")]
    notes: list[str] = []
    *_, last = answers(parse_request(small(sites=[{"name": "local"}, *sites])), notes.append)
    assert len(last.sites) == 3
    assert [note.partition(" job")[0] for note in notes] == ["warning: 2"]
    assert "in the scheduler's queue: workers at " in notes[0]


def test_replicas_are_found_in_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/dir.txt").write_text("12345")
    (tmp_path / "rc.yml").write_text(
        "pegasus: '5.0'\nreplicas:\n- {lfn: y, metadata: {size: 7}, pfns: [{site: mu, pfn: 'gsiftp://m/y'}]}\n"
        "- {lfn: dir.txt, pfns: [{site: mu, pfn: /elsewhere}]}\n"
        "- {lfn: 'r[0-9]', regex: true, pfns: [{site: tacc, pfn: 'gsiftp://t/r'}]}\n"
    )
    (tmp_path / "rc.txt").write_text(
        '# comment\nf file:///a site="mu" size="9"\nf gsiftp://t/a pool="tacc"\n'
        '"g \\" h" "file:///b c" site="mu"\nbroken\n\n  nosite file:///d x=1\n'
    )
    notes: list[str] = []
    replicas = find_replicas(
        ["y", "f", 'g " h', "dir.txt", "r5", "nosite", "lost"],
        [
            ("YAML", str(tmp_path / "rc.yml")),
            ("File", str(tmp_path / "rc.txt")),
            (None, str(tmp_path / "missing.yml")),
            ("JDBCRC", str(tmp_path / "rc.db")),
        ],
        [str(tmp_path / "here")],
        notes.append,
    )
    assert {lfn: (r.places, r.size_bytes) for lfn, r in replicas.items()} == {
        "dir.txt": ((("local", f"{tmp_path}/here/dir.txt"),), 5),
        "y": ((("mu", "gsiftp://m/y"),), 7),
        "r5": ((("tacc", "gsiftp://t/r"),), None),
        "f": ((("mu", "file:///a"), ("tacc", "gsiftp://t/a")), 9),
        'g " h': ((("mu", "file:///b c"),), None),
    }
    assert len(notes) == 2
    assert "JDBCRC, expected YAML, File or Regex" in notes[1]


def test_a_size_is_read_from_a_file_of_this_machine(tmp_path: Path) -> None:
    raw = tmp_path / "r aw"
    raw.write_text("abc")
    places = [["local", f"file://{tmp_path}/r%20aw"]]
    inputs, notes = read(small(files=[{"lfn": "raw", "places": places}, *SMALL["files"][1:]]))
    assert (inputs.raw_bytes, notes) == ({"raw": 3}, [])


# --- the command as one property -----------------------------------------------------------------


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1), min_size=1))
def test_a_command_is_quoted_only_where_needed(words: list[str]) -> None:
    text = command_text(words)
    assert all(plain in text for plain in words if plain.isalnum())
    if all(word.isalnum() for word in words):
        assert text == " ".join(words)


def test_priorities_are_answered_to_a_planner_that_takes_them() -> None:
    jobs = [dict(job) for job in SMALL["jobs"]]
    jobs[1]["profiles"] = {"dagman.priority": "5"}

    def lines(**changed: Any) -> list[str]:
        request = parse_request(small(jobs=jobs, **changed))
        *_, last = answers(request, lambda _: None)
        out = io.StringIO()
        last.write(out)
        return out.getvalue().splitlines()

    first, second, third, end = lines(priorities=True)
    # The user's own as it is, and none of a sub-workflow.
    assert re.fullmatch(r"j1\ttacc\t\d+", first) and (second, third) == ("j2\ttacc\t5", "s\tlocal")
    assert end.startswith("end\t3\t")
    assert lines()[0] == "j1\ttacc"
