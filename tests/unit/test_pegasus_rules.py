"""What pegasus-plan 5.1 accepts, and what it makes of it, is what ADON does. Tried on 5.1.3."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from site_world import Measurements, estimate_of

from network_provisioner.base.errors import InputError
from site_selector.catalogs.javapattern import compiled
from site_selector.catalogs.properties import expanded
from site_selector.catalogs.sources import Sources
from site_selector.estimates.estimating import estimate_world
from site_selector.estimates.input_sizes import with_history
from site_selector.inputs import Inputs, read_inputs, size_note
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.takes import plan_of
from site_selector.problem import build_problem

JOB = {
    "type": "job", "id": "J1", "name": "count", "arguments": [],
    "uses": [{"lfn": "in", "type": "input"}, {"lfn": "out", "type": "output"}],
}  # fmt: skip
FLOW: dict[str, Any] = {"pegasus": "5.0", "name": "tally", "jobs": [JOB]}
GROVE = {"name": "grove", "profiles": {"pegasus": {"style": "condor"}}}
POOL = {"name": "compute", "profiles": {"pegasus": {"style": "condor"}}}
SERVER = {"url": "pelican:///space", "operation": "all"}
STORE = {
    "name": "staging",
    "directories": [{"type": "sharedScratch", "path": "/space", "fileServers": [SERVER]}],
}
BOX = {"name": "box", "type": "docker", "image": "docker:///box"}
IN = {"lfn": "in", "metadata": {"size": 52}, "pfns": [{"site": "local", "pfn": "/data/in"}]}


def sites(*entries: object) -> dict[str, Any]:
    return {"pegasus": "5.0", "sites": list(entries)}


def replicas(*entries: object) -> dict[str, Any]:
    return {"pegasus": "5.0", "replicas": list(entries)}


def program(site: str = "grove", kind: str = "installed") -> dict[str, Any]:
    place = {"name": site, "pfn": "/opt/count", "type": kind}
    return {"pegasus": "5.0", "transformations": [{"name": "count", "sites": [place]}]}


KEY = "pegasus.data.configuration"
SHARED = f"{KEY} = sharedfs"
Load = Callable[..., Inputs]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes the files, and reads the workflow from its own folder with an empty home. What is
    None is not written; other keywords are options of Sources."""
    monkeypatch.chdir(tmp_path)

    def loaded(
        workflow: object = FLOW,
        sites_yml: object = sites(GROVE),
        replicas_yml: object = replicas(IN),
        transformations_yml: object = program(),
        files: Mapping[str, object] | None = None,
        execution_sites: list[str] | None = None,
        **options: Any,
    ) -> Inputs:
        named = {
            "workflow.yml": workflow, "sites.yml": sites_yml, "replicas.yml": replicas_yml,
            "transformations.yml": transformations_yml, **(files or {}),
        }  # fmt: skip
        for name, content in named.items():
            if content is not None:
                file = tmp_path / name
                file.parent.mkdir(exist_ok=True)
                text = content if isinstance(content, str) else yaml.safe_dump(content)
                file.write_text(text)
        options.setdefault("environment", {})
        sources = Sources(Path("workflow.yml"), home=tmp_path / "home", **options)
        return read_inputs(sources, execution_sites)

    return loaded


def uses(*entries: object) -> dict[str, Any]:
    return {**FLOW, "jobs": [{**JOB, "uses": list(entries)}]}


# ------------------------------------------------------------------------------ catalogs and sites


@pytest.mark.parametrize(
    ("catalog", "transformations", "candidates"),
    [
        (sites(GROVE), program(), ("grove",)),
        (sites(GROVE), program("local", "stageable"), ("grove",)),  # not the pool nobody declared
        (sites(GROVE, POOL), program("local", "stageable"), ("compute",)),
        (sites(POOL, STORE), program("staging", "stageable"), ("compute",)),
        (sites(STORE), program("local", "stageable"), ("condorpool",)),
        (sites(STORE), program("staging"), ("staging",)),  # a program is there: it computes
        (None, program("condorpool"), ("condorpool",)),
        ("", program("condorpool"), ("condorpool",)),
        (None, program("local", "stageable"), ("condorpool",)),
        (sites(GROVE, {**GROVE, "arch": "x86_64"}), program(), ("grove",)),  # the last one counts
        (sites({**GROVE, "directories": []}), program(), ("grove",)),
    ],
)
def test_where_jobs_run_where_nobody_says_so(
    load: Load, catalog: object, transformations: object, candidates: tuple[str, ...]
) -> None:
    inputs = load(sites_yml=catalog, transformations_yml=transformations)
    assert inputs.candidates["J1"] == candidates
    assert {"local", "condorpool"} <= inputs.sites.keys()


def at(site: str, **more: object) -> dict[str, Any]:
    catalog = program(site)
    catalog["transformations"][0]["sites"][0] |= more
    return {**catalog, "containers": [BOX]}


@pytest.mark.parametrize(
    ("grove", "transformations"),
    [
        ({}, at("GROVE")),  # sites' names in any case
        ({}, at("local", container="box")),  # what is inside a container runs anywhere
        ({"arch": "aarch64"}, at("grove", arch="aarch64")),
        ({"arch": "aarch64"}, at("local", container="box", arch="aarch64")),
        ({"os.release": "rhel", "os.version": "9"},
         at("grove", **{"os.release": "rhel", "os.version": "9"})),
    ],
)  # fmt: skip
def test_a_program_runs_where_its_system_is(
    load: Load, grove: dict[str, str], transformations: dict[str, Any]
) -> None:
    inputs = load(sites_yml=sites({**GROVE, **grove}), transformations_yml=transformations)
    assert inputs.candidates["J1"] == ("grove",)
    (executable,) = inputs.transformations["count"].executables
    assert executable.site in inputs.sites


@pytest.mark.parametrize(
    ("grove", "transformations", "place"),
    [
        ({"arch": "aarch64"}, at("grove"), "grove for x86_64 linux"),
        ({"os.type": "macosx"}, at("grove"), "grove for x86_64 linux"),
        ({}, at("grove", **{"os.release": "rhel"}), "grove for x86_64 linux rhel"),
        ({"os.release": "rhel", "os.version": "8"},
         at("grove", **{"os.release": "rhel", "os.version": "9"}), "grove for x86_64 linux rhel 9"),
        ({}, at("local", container="box", arch="ppc64le"), "local for ppc64le linux"),
    ],
)  # fmt: skip
def test_a_program_for_another_system_is_refused(
    load: Load, grove: dict[str, str], transformations: dict[str, Any], place: str
) -> None:
    message = f"no site can run count: it is at {place}, execution sites"
    with pytest.raises(InputError, match=message) as refused:
        load(sites_yml=sites({**GROVE, **grove}), transformations_yml=transformations)
    assert "did you mean" not in str(refused.value)  # it is the right name


def test_local_takes_jobs_only_where_it_is_named(load: Load) -> None:
    with pytest.raises(InputError, match="no site can run count: it is at local, execution sites"):
        load(transformations_yml=program("local"))
    for named in (["local"], ["*", "local"]):
        inputs = load(transformations_yml=program("local"), execution_sites=named)
        assert inputs.candidates["J1"] == ("local",)


def test_the_version_that_a_workflow_names_stops_nothing(load: Load) -> None:
    assert load(workflow={**FLOW, "pegasus": "4.9"}).candidates["J1"] == ("grove",)


def test_catalogs_inside_add_to_those_in_files(load: Load) -> None:
    inside = {
        **FLOW, "siteCatalog": sites(GROVE), "replicaCatalog": replicas({**IN, "metadata": None}),
        "transformationCatalog": program(),
    }  # fmt: skip
    inputs = load(inside, sites(STORE), replicas({"lfn": "in", "pfns": []}), program("mars"))
    assert inputs.candidates["J1"] == ("grove",)
    assert inputs.places["in"] == ("local",)
    assert "staging" in inputs.sites
    empty = dict.fromkeys(("siteCatalog", "replicaCatalog", "transformationCatalog"))
    assert load({**FLOW, **empty}).candidates["J1"] == ("grove",)


def test_catalogs_are_where_the_properties_say(load: Load, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".pegasusrc").write_text("my.base = conf\npegasus.catalog.site.file=no\n")
    inputs = load(
        sites_yml=None, replicas_yml=None, transformations_yml=None,
        files={
            "pegasus.properties": "pegasus.catalog.site.file = ${my.base}/where.yml\n"
            "pegasus.catalog.replica.file = elsewhere\nenv.SITE = grove\n"
            "pegasus.catalog.site.sites.grove.profiles.pegasus.data.configuration = sharedfs\n",
            "mine": "pegasus.catalog.replica = File\npegasus.catalog.replica.file = conf/data\n",
            "conf/where.yml": sites(GROVE), "conf/what.yml": program("${SITE}"),
            "conf/data": 'in file:///data/in site="local" size="7"\n',
        },
        conf=Path("mine"),
        environment={"_PEGASUS__CATALOG__TRANSFORMATION__FILE": "conf/what.yml", "SITE": "x"},
    )  # fmt: skip
    assert (inputs.candidates["J1"], inputs.raw_bytes) == (("grove",), {"in": 7})
    assert inputs.configurations["J1"] == ("sharedfs",)


@pytest.mark.parametrize(
    ("properties", "of_site", "of_program", "of_job", "option", "expected"),
    [
        ("", None, None, None, None, ("condorio", "condorio")),
        (SHARED, None, None, None, None, ("sharedfs", "sharedfs")),
        (SHARED, None, None, "condorio", None, ("condorio", "condorio")),
        (SHARED, None, None, None, "condorio", ("condorio", "condorio")),
        ("", "SharedFS", None, None, None, ("sharedfs", "condorio")),
        ("", "magic", None, None, None, ("sharedfs", "condorio")),
        ("", "sharedfs", None, "nonsharedfs", None, ("sharedfs", "nonsharedfs")),
        ("", "sharedfs", "condorio", "nonsharedfs", None, ("condorio", "condorio")),
        (f"{KEY} = Condor", "sharedfs", None, None, None, ("sharedfs", "condorio")),
        (SHARED, "condorio", None, None, "nonsharedfs", ("condorio", "nonsharedfs")),
    ],
)
def test_the_data_configuration_of_a_job_at_each_site(
    load: Load,
    properties: str,
    of_site: str | None,
    of_program: str | None,
    of_job: str | None,
    option: str | None,
    expected: tuple[str, str],
) -> None:
    """As pegasus-plan has it: the transformation before the site, that before the job, and that
    before the properties."""

    def profiles(name: str | None, **more: str) -> dict[str, Any]:
        return {"profiles": {"pegasus": more | ({"data.configuration": name} if name else {})}}

    catalog = program("local", "stageable")
    catalog["transformations"][0] |= profiles(of_program)
    inputs = load(
        workflow={**FLOW, "jobs": [JOB | profiles(of_job)]},
        sites_yml=sites({**GROVE, **profiles(of_site, style="condor")}, {**GROVE, "name": "far"}),
        transformations_yml=catalog,
        files={"pegasus.properties": properties},
        data_configuration=option,
    )
    assert (inputs.candidates["J1"], inputs.configurations["J1"]) == (("grove", "far"), expected)
    both = zip(("grove", "far"), expected, strict=True)
    staged = tuple((site, "local") for site, name in both if name == "condorio")
    assert inputs.staged == {"J1": staged}
    with pytest.raises(InputError, match="found 'magic', expected one of sharedfs"):
        load(data_configuration="magic")


@pytest.mark.parametrize(
    ("scratch", "stored", "place"),
    [
        ("gsiftp://grove/space", "gsiftp://far/in", "far"),
        ("gsiftp://grove/space", "ftp://far/in", "far"),
        ("gsiftp://grove/space", "irods://far/zone/in", "far through local"),
        ("scp://grove/space", "scp://far/in", "far through local"),  # no tool has two servers talk
        ("https://grove/space", "https://far/in", "far through local"),
        ("s3://me@grove/space", "s3://me@far/in", "far"),
        ("file:///space", "https://far/in", "far"),  # the submit host writes there
        (None, "https://far/in", "far"),
    ],
)
def test_what_no_tool_moves_from_server_to_server_passes_through_the_submit_host(
    load: Load, scratch: str | None, stored: str, place: str
) -> None:
    server = {"url": scratch, "operation": "all"}
    directory = {"type": "sharedScratch", "path": "/space", "fileServers": [server]}
    grove = {**GROVE, "directories": [directory] if scratch else []}
    sums = {"checksum": {"sha256": "0" * 64}}
    pfns = [{"site": "far", "pfn": stored}]
    held = {**IN, **sums, "metadata": {"size": 10_000_000}, "pfns": pfns}
    rates = {"adon.bandwidth.local": "80 Mb/s", "adon.bandwidth.grove": "80 Mb/s"}
    far = {"name": "far", "profiles": {"pegasus": rates}}
    local = {"name": "local", "profiles": {"pegasus": {"adon.bandwidth.grove": "40 Mb/s"}}}
    inputs = load(
        sites_yml=sites(grove, far, local),
        replicas_yml=replicas(held),
        files={"pegasus.properties": SHARED},
        execution_sites=["grove"],
    )
    assert inputs.places == {"in": (place,)}
    problem = build_problem(inputs, estimate_world(inputs, now=0.0))
    (transfer,) = Estimator(problem)([0]).transfers
    assert problem.places[transfer.src] == place
    assert transfer.end_s == pytest.approx(3.0 if place != "far" else 1.0)
    (plan,) = [plan_of("x", problem, [0], Estimator(problem)([0]), 0.0)]
    assert sorted(plan.flows) == (["far>grove"] if place == "far" else ["far>local", "local>grove"])


def test_what_grid_ftp_moves_without_a_checksum_passes_through_the_submit_host(load: Load) -> None:
    server = {"url": "gsiftp://grove/space", "operation": "all"}
    directory = {"type": "sharedScratch", "path": "/space", "fileServers": [server]}
    held = {**IN, "pfns": [{"site": "far", "pfn": "gsiftp://far/in"}]}
    known = {
        "sites_yml": sites({**GROVE, "directories": [directory]}, {"name": "far"}),
        "replicas_yml": replicas(held),
        "execution_sites": ["grove"],
    }
    inputs = load(files={"pegasus.properties": SHARED}, **known)
    assert inputs.places == {"in": ("far through local",)}
    unchecked = f"{SHARED}\npegasus.integrity.checking = none"
    assert load(files={"pegasus.properties": unchecked}, **known).places == {"in": ("far",)}
    # condorio: all files are staged at the submit host itself.
    assert load(files={"pegasus.properties": ""}, **known).places == {"in": ("far",)}


BYPASS = "pegasus.transfer.bypass.input.staging = True"
FLAGGED = {**FLOW, "jobs": [{**JOB, "uses": [{"lfn": "in", "type": "input", "bypass": True}]}]}


@pytest.mark.parametrize(
    ("workflow", "settings", "stored", "bypassed"),
    [
        (FLOW, BYPASS, "https://far/in", True),
        (FLOW, f"{BYPASS}\n{KEY} = nonsharedfs", "https://far/in", True),
        (FLAGGED, "", "https://far/in", True),
        (FLOW, "", "https://far/in", False),
        (FLOW, BYPASS.replace("True", "0"), "https://far/in", False),
        (FLOW, f"{BYPASS}\n{SHARED}", "https://far/in", False),
        (FLOW, BYPASS, "file:///data/in", False),
    ],
)
def test_jobs_fetch_what_bypasses_staging_from_where_it_lies(
    load: Load, workflow: object, settings: str, stored: str, bypassed: bool
) -> None:
    server = {"url": "scp://grove/space", "operation": "all"}
    directory = {"type": "sharedScratch", "path": "/space", "fileServers": [server]}
    inputs = load(
        workflow,
        sites_yml=sites({**GROVE, "directories": [directory]}, {"name": "far"}),
        replicas_yml=replicas({**IN, "pfns": [{"site": "far", "pfn": stored}]}),
        files={"pegasus.properties": settings},
        execution_sites=["grove"],
    )
    problem = build_problem(inputs, estimate_world(inputs, now=0.0))
    assert problem.bypassed == (((0,),) if bypassed else ())
    if bypassed:
        (transfer,) = [t for t in Estimator(problem)([0]).transfers if t.file == 0]
        assert (problem.places[transfer.src], problem.places[transfer.dst]) == ("far", "grove")


def test_jobs_read_what_bypasses_staging_where_they_run(load: Load) -> None:
    catalog = {"sites_yml": sites(GROVE), "files": {"pegasus.properties": BYPASS}}
    at_home = replicas({**IN, "pfns": [{"site": "grove", "pfn": "file:///data/in"}]})
    inputs = load(replicas_yml=at_home, execution_sites=["grove"], **catalog)
    problem = build_problem(inputs, estimate_world(inputs, now=0.0))
    assert problem.bypassed == ((0,),)
    assert [t for t in Estimator(problem)([0]).transfers if t.file == 0] == []


def test_staging_sites_are_those_that_pegasus_takes(load: Load) -> None:
    catalog = sites(GROVE, {"name": "store"})
    nonshared = {"files": {"pegasus.properties": f"{KEY} = nonsharedfs"}, "sites_yml": catalog}
    assert load(**nonshared).staged == {"J1": ()}
    staged = {"J1": (("grove", "store"),)}
    assert load(**nonshared, staging_site="store").staged == staged
    assert load(**nonshared, staging_site="grove=store,other=local").staged == staged
    with pytest.raises(InputError, match="staging site 'shop' is not in the site catalog"):
        load(**nonshared, staging_site="shop")
    with pytest.raises(InputError, match="found 'store', expected 'local' with the data"):
        load(sites_yml=catalog, files={"pegasus.properties": ""}, staging_site="store")


def test_a_tag_of_a_site_goes_before_its_other_profiles(load: Load) -> None:
    def profiles(**values: str) -> dict[str, Any]:
        return {"profiles": {"pegasus": values}}

    tag = {"name": "fast", **profiles(**{"data.configuration": "sharedfs"})}
    own = profiles(style="condor", **{"data.configuration": "nonsharedfs"})
    catalog = sites({**GROVE, **own, "x-tags": [tag]})
    assert load(sites_yml=catalog).configurations["J1"] == ("nonsharedfs",)
    tagged = {**FLOW, "jobs": [JOB | profiles(tag="fast")]}
    assert load(sites_yml=catalog, workflow=tagged).configurations["J1"] == ("sharedfs",)
    # The site's own profiles are the job's there, its tag among them.
    catalog = sites({**GROVE, **profiles(style="condor", tag="fast"), "x-tags": [tag]})
    assert load(sites_yml=catalog).configurations["J1"] == ("sharedfs",)
    tagged = {**FLOW, "jobs": [JOB | profiles(tag="slow")]}
    assert load(sites_yml=catalog, workflow=tagged).configurations["J1"] == ("sharedfs",)
    catalog = sites({**GROVE, **profiles(style="condor", tag=""), "x-tags": [tag]})
    tagged = {**FLOW, "jobs": [JOB | profiles(tag="fast")]}
    assert load(sites_yml=catalog, workflow=tagged).configurations["J1"] == ("condorio",)


@pytest.mark.parametrize(
    ("own", "general", "expected"),
    [(None, None, "nonsharedfs"), ("sharedfs", None, "sharedfs"), (None, "sharedfs", "sharedfs")],
)
def test_a_containers_profiles_are_those_of_its_programs(
    load: Load, own: str | None, general: str | None, expected: str
) -> None:
    def profiles(name: str | None) -> dict[str, Any]:
        return {"profiles": {"pegasus": {"data.configuration": name}}} if name else {}

    catalog = at("grove", container="box", **profiles(own))
    catalog["containers"] = [{**BOX, **profiles("nonsharedfs")}]
    catalog["transformations"][0] |= profiles(general)
    grove = sites({**GROVE, **profiles("sharedfs")})
    inputs = load(sites_yml=grove, transformations_yml=catalog)
    assert inputs.configurations["J1"] == (expected,)


def test_keys_of_pegasus_profiles_are_in_any_case(load: Load) -> None:
    def profiles(**values: str) -> dict[str, Any]:
        return {"profiles": {"pegasus": values}}

    shared = profiles(**{"Data.Configuration": "sharedfs"})
    assert load(sites_yml=sites({**GROVE, **shared})).configurations["J1"] == ("sharedfs",)
    of_job = {**FLOW, "jobs": [JOB | shared | {"id": "J1"}]}
    assert load(workflow=of_job).configurations["J1"] == ("sharedfs",)
    tagged = {**FLOW, "jobs": [JOB | profiles(TAG="fast", Cores="2")]}
    inputs = load(
        sites_yml=sites({**GROVE, "x-tags": [{"name": "fast", **shared}]}), workflow=tagged
    )
    assert (inputs.configurations["J1"], inputs.workflow.jobs["J1"].cores) == (("sharedfs",), 2)
    named = "pegasus.catalog.site.sites.grove.profiles.pegasus.DATA.Configuration = sharedfs"
    inputs = load(files={"pegasus.properties": named})
    assert inputs.configurations["J1"] == ("sharedfs",)
    # Names of sites in ADON's own keys stay as they are.
    hint = profiles(**{"adon.rtt.Far": "5 ms"})
    far = load(sites_yml=sites({**GROVE, **hint}, {**GROVE, "name": "Far"})).sites["grove"]
    assert far.hints.rtt_s == {"Far": 0.005}


def test_a_hosted_catalog_is_completed_by_the_own_one(load: Load, tmp_path: Path) -> None:
    hosted = sites({**POOL, "profiles": {"env": {"A": "1"}, "pegasus": {"style": "glite"}}}, STORE)
    folder = tmp_path / "served" / "5.1" / "conf"
    folder.mkdir(parents=True)
    (folder / "pool.yml").write_text(yaml.safe_dump(hosted))
    template = (
        "pegasus.catalog.site.repo = file://{0}/served\npegasus.catalog.site.repo.file = {1}\n"
    )
    tags = [{"name": "big", "profiles": {"pegasus": {KEY.removeprefix("pegasus."): "sharedfs"}}}]
    own = sites({**POOL, "os.release": "rhel", "os.version": "9", "x-tags": tags})
    files = {"pegasus.properties": template.format(tmp_path, "pool.yml")}
    programs = program("compute")
    programs["transformations"][0]["sites"][0] |= {"os.release": "rhel", "os.version": "9"}
    job = {**JOB, "profiles": {"pegasus": {"tag": "big"}}}
    inputs = load({**FLOW, "jobs": [job]}, own, transformations_yml=programs, files=files)
    assert inputs.configurations["J1"] == ("sharedfs",)
    assert inputs.sites["compute"].profiles == {"env": {"A": "1"}, "pegasus": {"style": "condor"}}
    assert "staging" in inputs.sites
    files = {"pegasus.properties": template.format(tmp_path, "gone.yml")}
    inputs = load(sites_yml=own, transformations_yml=programs, files=files)
    assert inputs.notes[0].startswith("the hosted site catalog gone.yml cannot be read: ")
    (folder / "bare.yml").write_text("sites: []\n")  # which Pegasus refuses, hosted or not
    files = {"pegasus.properties": template.format(tmp_path, "bare.yml")}
    with pytest.raises(InputError, match=r"bare\.yml:1: site catalog: found no"):
        load(sites_yml=own, transformations_yml=program("compute"), files=files)


def test_programs_without_a_catalog(load: Load) -> None:
    inputs = load(transformations_yml=None, files={"transformations/count": "#!/bin/sh"})
    assert inputs.candidates["J1"] == ("grove",)
    named = {"selector": {"execution.site": "grove", "pfn": "/opt/c"}}
    inputs = load({**FLOW, "jobs": [{**JOB, "name": "other", "profiles": named}]})
    assert inputs.candidates["J1"] == ("grove",)
    assert [e.pfn for e in inputs.transformations["other"].executables] == ["/opt/c"]


# ------------------------------------------------------------------------------- files and sizes


@pytest.mark.parametrize(
    ("workflow", "catalog", "files"),
    [
        (uses({"lfn": "out", "type": "output"}), None, []),
        (uses({"lfn": "in", "type": "input"}, {"lfn": "w", "type": "input", "optional": True}),
         replicas(IN), ["in"]),
        (FLOW, replicas(IN, {"lfn": "old", "pfns": []}), ["in"]),
        (FLOW, {**replicas({**IN, "checksum": {"sha256": "ab"}}), "x-a": {"b": 1}}, ["in"]),
        (FLOW, replicas({"lfn": r"(?<n>i\p{Lower})", "regex": True, "pfns": IN["pfns"]}), ["in"]),
        (FLOW, replicas(IN, {"lfn": "(((", "regex": True, "pfns": IN["pfns"]}), ["in"]),
        ({**FLOW, "x-a": 1, "hooks": {"shell": []}, "jobDependencies": []}, replicas(IN), ["in"]),
        ({**FLOW, "jobs": [{**JOB, "profiles": {"x-a": {"b": 1}, "pegasus": {
            "x-n": [1], "runtime": "soon", "memory.expr": "pegasus_memory_mb * 2"}}}]},
         replicas(IN), ["in"]),
        (uses(*JOB["uses"], *JOB["uses"]), replicas(IN), ["in"]),
    ],
)  # fmt: skip
def test_what_pegasus_accepts(
    load: Load, workflow: object, catalog: object, files: list[str]
) -> None:
    inputs = load(workflow, replicas_yml=catalog)
    assert (inputs.candidates["J1"], [*inputs.raw_bytes]) == (("grove",), files)


@pytest.mark.parametrize(
    ("workflow", "catalog", "message"),
    [
        (FLOW, None, "job J1: input 'in' is written by no job and has no replica"),
        (FLOW, replicas({"lfn": "in", "pfns": []}), "job J1: input 'in' is written by no job"),
        (FLOW, replicas({"lfn": "i.", "regex": True, "pfns": [*IN["pfns"], *IN["pfns"]]}),
         "replica pattern 'i.': found 2 pfns, expected 1"),
        (uses({"lfn": "in", "type": "inout"}), replicas(IN), "has type 'inout', expected input"),
        (uses({"lfn": "in", "type": "none"}), replicas(IN), "has type 'none', expected input"),
    ],
)  # fmt: skip
def test_what_pegasus_refuses(load: Load, workflow: object, catalog: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(workflow, replicas_yml=catalog)


def test_entries_of_one_file_are_merged(load: Load) -> None:
    other = {"lfn": "in", "pfns": [{"site": "grove", "pfn": "/g/in"}]}
    pattern = {"lfn": "(i)(.)", "regex": True, "pfns": [{"site": "grove", "pfn": "/[2]/[1][0]"}]}
    inputs = load(replicas_yml=replicas(IN, other, pattern))
    assert inputs.replicas.entries["in"].places == (
        ("local", "/data/in"), ("grove", "/g/in"), ("grove", "/n/iin"),
    )  # fmt: skip
    assert inputs.raw_bytes == {"in": 52}


def test_a_directory_of_inputs_comes_first(load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    inputs = load(files={"data/in": "abc"}, input_dirs=[Path("data")])
    assert inputs.raw_bytes == {"in": 3}
    assert inputs.replicas.entries["in"].places == (("local", str(folder / "in")),)


def test_sizes_that_nobody_tells(load: Load, tmp_path: Path) -> None:
    here = {"lfn": "here", "pfns": [{"site": "local", "pfn": f"file://{tmp_path}/here"}]}
    far = {"lfn": "in", "pfns": [{"site": "grove", "pfn": "/in"}], "metadata": {"size": "large"}}
    workflow = uses(*JOB["uses"], {"lfn": "here", "type": "input"})
    inputs = load(workflow, replicas_yml=replicas(here, far), files={"here": "abcd"})
    assert inputs.raw_bytes == {"here": 4, "in": 4}
    assert size_note(inputs) == (
        "no size is known of 1 of 2 inputs (in): taken as 4 B (the median of the others)"
    )
    seen = {
        ("compute_rate", "count@grove"): estimate_of(1000.0),
        ("runtime", "count@grove"): estimate_of(60.0),
    }
    known = with_history(inputs, Measurements(seen), time.time())
    assert known.raw_bytes == {"here": 4, "in": 60_000 - 4}
    assert "60 kB (by what earlier runs read)" in size_note(known)
    assert size_note(load()) == ""


# ------------------------------------------------------------------------------------- variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ${B} ${b} $B", "a grove grove $B"),
        ("${NESTED}", "grove/x"),
        (r"\${B}", "${B}"),
        ("${B:-other}", "grove"),
        ("open ${B", "open ${B"),
        ("none", "none"),
    ],
)
def test_variables_are_put_in_as_pegasus_does(text: str, expected: str) -> None:
    known = {"B": "grove", "NESTED": "${B}/x", "LOOP": "${LOOP}"}
    assert expanded(text, "f", known) == expected


@pytest.mark.parametrize("text", ["${NOT}", "# ${NOT}", "${NOT:-x}"])
def test_a_variable_that_is_not_set_is_named(load: Load, text: str) -> None:
    with pytest.raises(InputError, match=r"^f:2: variable 'NOT' is not set, expected a value in"):
        expanded(f"a\n{text}", "f", {})
    with pytest.raises(InputError, match="'LOOP' stands for itself"):
        expanded("${LOOP}", "f", {"LOOP": "${LOOP}"})
    catalog = f"{yaml.safe_dump(sites(GROVE))}{text if text[0] == '#' else f'x-a: {text}'}\n"
    with pytest.raises(InputError, match=r"^sites\.yml:\d: variable 'NOT' is not set"):
        load(sites_yml=catalog)
    with pytest.raises(InputError, match=r"properties:1: pegasus\.catalog\.site\.file: found"):
        load(files={"pegasus.properties": "pegasus.catalog.site.file=${HOME}/s.yml\n"})


# --------------------------------------------------------------------------------- Java's patterns


@pytest.mark.parametrize(
    ("pattern", "matches", "other"),
    [
        (r"(?<what>leav\p{Alpha}+)\.txt", "leaves.txt", "leav1.txt"),
        (r"(?<a>.)\k<a>", "aa", "ab"),
        (r"[a-z&&[^b]]+", "acd", "abd"),
        (r"[a-c[x-z]_]+", "a_x", "d"),
        (r"[^a[b]]", "c", "b"),
        (r"\Qa.b\E\d++", "a.b12", "axb1"),
        (r"a(?i)bC", "aBc", "ABC"),
        (r"(a|(?i)b)c", "Bc", "BC"),
        (r"[\p{L}_]+\P{Digit}", "é_x", "é_1"),
        (r"\p{Lu}\w*\z", "Abc", "abc"),
        (r"\x{41}\h?(?<!x)b", "A b", "ab"),
        (r"\d", "1", "\u0661"),  # digits of ASCII, as in Java
        (r"\R|[\h\-\]]", "-", "\\"),
        (r"(?x) a \s b  # a comment", "a b", "ab"),
        (r"\G[^\P{L}]+", "aé", "a1"),
    ],
)
def test_patterns_of_java(pattern: str, matches: str, other: str) -> None:
    regex = compiled(pattern)
    assert regex.fullmatch(matches)
    assert not regex.fullmatch(other)


def test_properties_files_beside_and_here_are_both_read(tmp_path: Path) -> None:
    (tmp_path / "pegasus.properties").write_text("a=1\n")
    sources = Sources(tmp_path / "workflow.yml", home=tmp_path, environment=dict(os.environ))
    assert sources.properties["a"] == "1"


# ------------------------------------------------------------------ replica catalogs of other types


@pytest.mark.parametrize(
    ("said", "pfn"),
    [
        ("Directory\npegasus.catalog.replica.directory = d", "file://{}/d/in"),
        (
            "directory\npegasus.catalog.replica.directory = {}\n"
            "pegasus.catalog.replica.directory.flat.lfn = true\n"
            "pegasus.catalog.replica.directory.url.prefix = sftp://h",
            "sftp://h{}/d/in",
        ),
        ("Regex\npegasus.catalog.replica.file = d/rc.txt", "/x/in"),
        (
            "MRC\npegasus.catalog.replica.mrc.a = Regex\n"
            "pegasus.catalog.replica.mrc.a.file = d/rc.txt\n"
            "pegasus.catalog.replica.mrc.b = Directory\n"
            "pegasus.catalog.replica.mrc.b.directory = d",
            "/x/in",
        ),
    ],
)
def test_replica_catalogs_of_other_types(load: Load, tmp_path: Path, said: str, pfn: str) -> None:
    here = str(tmp_path)
    properties = f"pegasus.catalog.replica = {said}\n".replace("{}", here)
    files = {"d/in": "abc", "d/rc.txt": '(i.) /x/[1] site="local" size="3" regex="true"\n'}
    inputs = load(replicas_yml=None, files={**files, "pegasus.properties": properties})
    assert inputs.replicas.entries["in"].places[0] == ("local", pfn.replace("{}", here))
    assert inputs.raw_bytes["in"] == 3


def test_a_catalog_that_is_not_there_is_told(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    properties = "pegasus.catalog.replica.file = gone.yml\n"
    with pytest.raises(InputError, match="has no replica"):
        load(files={"pegasus.properties": properties})
    assert caplog.messages == [
        "pegasus.catalog.replica.file: found no file gone.yml; it is left out"
    ]


def test_a_wrong_hint_in_the_properties_is_named(load: Load) -> None:
    key = "pegasus.catalog.site.sites.grove.profiles.pegasus.adon.workers"
    with pytest.raises(InputError, match=r"properties: site .grove.: adon\.workers: found"):
        load(files={"pegasus.properties": f"{key} = lots\n"})


def _job(name: str, reads: str, writes: str, stage_out: bool = True) -> dict[str, Any]:
    use = {"lfn": writes, "type": "output", "stageOut": stage_out}
    return {**JOB, "id": name, "uses": [{"lfn": reads, "type": "input"}, use]}


@pytest.mark.parametrize(
    ("listed", "last_wanted", "scope", "jobs", "held"),
    [
        (("in",), True, "full", "J1 J2", "in"),
        (("mid",), True, "full", "J2", "mid"),  # what none but J1 reads may be missing
        (("in", "mid"), True, "none", "J1 J2", "in"),
        (("in", "mid"), True, "partial", "J1 J2", "in"),
        (("in", "out"), True, "full", "J1", "in out"),  # "mid" is wanted as well
        (("in",), False, "full", "J1", "in"),  # what nobody wants
    ],
)
def test_jobs_whose_results_are_there_do_not_run(
    load: Load, listed: tuple[str, ...], last_wanted: bool, scope: str, jobs: str, held: str
) -> None:
    flow = {**FLOW, "jobs": [_job("J1", "in", "mid"), _job("J2", "mid", "out", last_wanted)]}
    properties = f"pegasus.data.reuse.scope = {scope}\n"
    catalog = replicas(*({**IN, "lfn": lfn} for lfn in listed))
    inputs = load(flow, replicas_yml=catalog, files={"pegasus.properties": properties})
    assert " ".join(inputs.workflow.jobs) == jobs
    assert " ".join(sorted(inputs.replicas.entries)) == held
    build_problem(inputs, estimate_world(inputs, now=0.0))
    catalog = replicas(IN, {**IN, "lfn": "out"})
    whole = load(replicas_yml=catalog, files={"pegasus.properties": ""})
    assert list(whole.workflow.jobs) == ["J1"]
    assert whole.notes[0].startswith("pegasus-plan runs none of the 1 jobs, because replica")


@pytest.mark.parametrize(
    ("said", "candidates"),
    [
        ("catalog.transformation.mapper = All", ("grove", "mu")),
        ("catalog.transformation.mapper = Installed", ("grove",)),
        ("catalog.transformation.mapper = Staged", ("mu",)),
        ("selector.transformation = Installed", ("grove",)),
        ("selector.transformation = Submit", ()),
    ],
)
def test_programs_that_pegasus_takes(load: Load, said: str, candidates: tuple[str, ...]) -> None:
    catalog = program()
    catalog["transformations"][0]["sites"] += program("mu", "stageable")["transformations"][0][
        "sites"
    ]
    files = {"pegasus.properties": f"pegasus.{said}\n"}
    options = {"transformations_yml": catalog, "files": files}
    two = sites(GROVE, {**GROVE, "name": "mu"})
    if candidates:
        assert load(sites_yml=two, **options).candidates["J1"] == candidates
    else:
        with pytest.raises(InputError, match="no site can run count"):
            load(sites_yml=two, **options)


@pytest.mark.parametrize(
    ("said", "places"),
    [
        ("", ["/own/in"]),
        ("catalog.replica.dax.asrc = true", ["/own/in", "/data/in"]),
        (
            "catalog.replica.dax.asrc = true\npegasus.selector.replica = Regex\n"
            "pegasus.selector.replica.regex.rank.10 = .*\n"
            "pegasus.selector.replica.regex.rank.9 = /data/.*",
            ["/data/in"],
        ),
    ],
)
def test_replicas_that_pegasus_takes(load: Load, said: str, places: list[str]) -> None:
    own = {**IN, "pfns": [{"site": "grove", "pfn": "/own/in"}]}
    flow = {**FLOW, "replicaCatalog": {"replicas": [own]}}
    inputs = load(flow, files={"pegasus.properties": f"pegasus.{said}\n" if said else ""})
    assert [pfn for _, pfn in inputs.replicas.entries["in"].places] == places
    assert len(inputs.places["in"]) == len(places)


def test_files_that_only_a_sites_own_jobs_reach(load: Load) -> None:
    two = sites(GROVE, {**GROVE, "name": "mu"})
    catalog = program("local", "stageable")

    def at(*places: tuple[str, str]) -> Inputs:
        pfns = [{"site": site, "pfn": pfn} for site, pfn in places]
        entry = replicas({**IN, "pfns": pfns})
        return load(sites_yml=two, transformations_yml=catalog, replicas_yml=entry)

    assert at(("mu", "file:///in")).candidates["J1"] == ("mu",)
    assert at(("mu", "file:///in"), ("store", "http://s/in")).candidates["J1"] == ("grove", "mu")
    assert at(("local", "file:///in")).candidates["J1"] == ("grove", "mu")
    assert at(("store", "file:///in")).candidates["J1"] == ("grove", "mu")
    catalog = program("mu", "stageable")
    assert at(("local", "file:///in")).candidates["J1"] == ("mu",)
    catalog["transformations"][0]["sites"][0]["pfn"] = "http://s/count"
    assert at(("local", "file:///in")).candidates["J1"] == ("grove", "mu")


def test_a_directory_is_as_large_as_what_is_in_it(load: Load, tmp_path: Path) -> None:
    place = {"site": "local", "pfn": f"file://{tmp_path}/data"}
    entry = replicas({"lfn": "in", "pfns": [place]})
    inputs = load(replicas_yml=entry, files={"data/a": "abc", "data/b": "de"})
    assert inputs.raw_bytes["in"] == 5


def test_results_that_go_elsewhere_are_told(load: Load) -> None:
    files = {"pegasus.properties": "pegasus.dir.storage.mapper = Fixed\n"}
    assert load(files=files).notes[0].startswith("pegasus.dir.storage.mapper = Fixed: results go")


def test_a_program_without_sites_in_the_workflow_is_where_the_file_says(load: Load) -> None:
    flow = {**FLOW, "transformationCatalog": {"transformations": [{"name": "count", "sites": []}]}}
    assert load(flow).candidates["J1"] == ("grove",)


def test_the_planner_sets_the_variable_of_its_directory(load: Load, tmp_path: Path) -> None:
    (tmp_path / "pegasus-plan").touch(0o755)
    catalog = program()
    catalog["transformations"][0]["sites"][0]["pfn"] = "${PEGASUS_BIN_DIR}/count"
    inputs = load(transformations_yml=catalog, environment={"PATH": str(tmp_path)})
    assert inputs.transformations["count"].executables[0].pfn == f"{tmp_path}/count"
