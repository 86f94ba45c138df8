"""Reading the catalogs, and checking them against the workflow."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from site_world import (
    inputs_from,
    job,
    replicas_text,
    sites_text,
    transformations_text,
    workflow_text,
    write_all,
)

from network_provisioner.base.errors import InputError
from site_selector.catalogs.documents import parse_document
from site_selector.catalogs.entries import replicas_of, sites_of, transformations_of
from site_selector.catalogs.replicas import measured
from site_selector.inputs import load_inputs

FLOW = workflow_text([job("x", "a", ["f"], ["g"])])
SITES = sites_text({"mu": {}, "tacc": {}, "local": {}})
REPLICAS = replicas_text({"f": ("mu", 100)})
PROGRAMS = transformations_text({"a": ["mu", "tacc"]})


def test_sites_with_servers_and_hints() -> None:
    text = sites_text(
        {
            "mu": {
                "style": "condor",
                "adon.workers": 8,
                "adon.rate": "25 MB/s",
                "adon.queue_wait": "30 s",
                "adon.bandwidth.tacc": "200 Mb/s",
                "adon.rtt.tacc": "53 ms",
                "adon.loss.tacc": 0.0001,
                "adon.streams": 4,
                "adon.buffer": "4 MiB",
            },
            "tacc": {},
        }
    )
    sites = sites_of(parse_document(text, "sites.yml", "x"))
    hints = sites["mu"].hints
    assert (hints.workers, hints.rate, hints.queue_wait_s) == (8, 25e6, 30)
    assert (hints.streams, hints.buffer_bytes) == (4, 4 << 20)
    assert (hints.bandwidth_bps, hints.rtt_s, hints.loss) == (
        {"tacc": 200e6}, {"tacc": 0.053}, {"tacc": 0.0001},
    )  # fmt: skip
    assert sites["mu"].profiles["pegasus"]["style"] == "condor"
    directory = sites["tacc"].directories[0]
    assert (directory.kind, directory.path) == ("sharedScratch", "/tacc/scratch")
    assert directory.servers[0].url == "gsiftp://tacc/scratch"


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ({"adon.worker": 3}, "unknown key 'adon.worker', did you mean 'adon.workers'?"),
        ({"adon.zzz": 3}, "unknown key 'adon.zzz', expected adon.workers"),
        ({"adon.workers": -1}, "adon.workers: found '-1', expected a whole number from 0 to"),
        ({"adon.rate": "25 Mb/s"}, "adon.rate: found '25 Mb/s', expected bytes per second"),
        ({"adon.rate": "0"}, "adon.rate: found '0', expected bytes per second"),
        ({"adon.queue_wait": "soon"}, "adon.queue_wait: found 'soon', expected"),
        ({"adon.bandwidth.tac": "1 Gb/s"}, "adon.bandwidth.tac names the unknown site 'tac'"),
        ({"adon.bandwidth.tacc": "25 MB/s"}, "adon.bandwidth.tacc: found '25 MB/s', expected bits"),
        ({"adon.bandwidth.tacc": "-1 Gb/s"}, "expected a finite number that is not negative"),
        ({"adon.loss.tacc": 2}, "adon.loss.tacc: found '2', expected a fraction"),
        ({"adon.streams": 0}, "adon.streams: found '0', expected a whole number from 1 to"),
    ],
)
def test_bad_hints_name_file_line_and_site(profiles: dict[str, object], message: str) -> None:
    text = sites_text({"tacc": {}, "mu": profiles})
    with pytest.raises(InputError) as error:
        sites_of(parse_document(text, "sites.yml", "x"))
    line = next(i for i, row in enumerate(text.splitlines(), 1) if next(iter(profiles)) in row)
    assert str(error.value).startswith(f"sites.yml:{line}: site 'mu': ")
    assert message in str(error.value)


def test_replicas_by_name_and_by_pattern() -> None:
    text = (
        "pegasus: 5.0.4\nreplicas:\n"
        "- lfn: .*\\.fits\n  regex: true\n  pfns: [{site: mu, pfn: /d}]\n  metadata: {size: 7}\n"
        "- lfn: a.fits\n  pfns: [{site: tacc, pfn: /a}, {site: mu, pfn: /b}]\n"
        "  metadata: {size: 9}\n"
    )
    replicas = replicas_of(parse_document(text, "r", "x"))
    exact, matched = replicas.find("a.fits"), replicas.find("b.fits")
    assert exact is not None
    assert exact.size_bytes == 9
    assert exact.places == (("tacc", "/a"), ("mu", "/b"), ("mu", "/d"))
    assert matched is not None
    assert matched.size_bytes == 7
    assert replicas.find("b.txt") is None


def test_a_url_that_cannot_be_read_has_no_size() -> None:
    assert measured(None, [("local", "http://[2001:db8::1/f"), ("tacc", "//[/f")]) is None
    assert measured(None, [("local", "gsiftp://[/f"), ("local", __file__)])


def test_profiles_are_without_extensions() -> None:
    text = sites_text({"mu": {"style": "condor", "x-note": "ours"}})
    sites = sites_of(parse_document(text, "sites.yml", "x"))
    assert sites["mu"].profiles["pegasus"] == {"style": "condor"}


def test_a_container_of_a_program_in_the_workflow_is_named_by_text() -> None:
    place = {"name": "mu", "pfn": "/a", "type": "installed", "container": ["box"]}
    catalog = {"transformations": [{"name": "a", "sites": [place]}]}
    text = yaml.safe_dump({"transformationCatalog": catalog})
    with pytest.raises(InputError, match="a: found no container a list in the catalog"):
        transformations_of(parse_document(text, "w", "x"), ("transformationCatalog",))


def test_a_stageable_program_runs_wherever_it_fits() -> None:
    text = yaml.safe_dump(
        {
            "pegasus": "5.0",
            "transformations": [
                {
                    "name": "a",
                    "sites": [
                        {"name": "local", "pfn": "/a", "type": "stageable", "arch": "x86_64",
                         "os.type": "linux"},
                        {"name": "arm", "pfn": "/a", "type": "installed", "arch": "aarch64"},
                    ],
                }
            ]
        }
    )  # fmt: skip
    program = transformations_of(parse_document(text, "t", "x"))["a"]
    sites = sites_of(parse_document(sites_text({"mu": {}, "arm": {}, "arm2": {}}), "s", "x"))
    assert program.sites(sites) == ("mu", "arm", "arm2")
    odd = sites_text({"mu": {}, "arm": {}, "arm2": {}}).replace("x86_64", "aarch64")
    assert program.sites(sites_of(parse_document(odd, "s", "x"))) == ("arm",)


def test_runtime_at_a_site_beats_the_general_one() -> None:
    text = yaml.safe_dump(
        {
            "pegasus": "5.0",
            "transformations": [
                {
                    "name": "a",
                    "profiles": {"pegasus": {"runtime": "60"}},
                    "sites": [
                        {"name": "mu", "pfn": "/a", "type": "installed",
                         "profiles": {"pegasus": {"runtime": "20"}}},
                        {"name": "tacc", "pfn": "/a", "type": "installed"},
                    ],
                }
            ]
        }
    )  # fmt: skip
    program = transformations_of(parse_document(text, "t", "x"))["a"]
    assert (program.runtime_at("mu"), program.runtime_at("tacc")) == (20, 60)


def test_candidates_sizes_and_places() -> None:
    inputs = inputs_from(FLOW, SITES, REPLICAS, PROGRAMS)
    assert inputs.candidates == {"x": ("mu", "tacc")}
    assert inputs.raw_bytes == {"f": 100}
    assert inputs.places == {"f": ("mu",)}


def test_a_hint_leaves_one_candidate_and_sites_can_be_limited() -> None:
    hinted = workflow_text([job("x", "a", ["f"], selector={"execution.site": "tacc"})])
    assert inputs_from(hinted, SITES, REPLICAS, PROGRAMS).candidates == {"x": ("tacc",)}
    limited = inputs_from(FLOW, SITES, REPLICAS, PROGRAMS, execution_sites=["tacc", "local"])
    assert limited.candidates == {"x": ("tacc",)}


def test_a_size_in_the_workflow_is_enough_and_a_remote_url_may_lie_anywhere() -> None:
    flow = workflow_text([job("x", "a", ["f"], sizes={"f": 55})])
    replicas = (
        "pegasus: '5.0'\nreplicas:\n- lfn: f\n  pfns: [{site: web, pfn: 'https://x.org/f'}]\n"
    )
    inputs = inputs_from(flow, SITES, replicas, PROGRAMS)
    assert inputs.raw_bytes == {"f": 55}
    assert inputs.places == {"f": ("web",)}


def _hint(site: str) -> str:
    return workflow_text([job("x", "a", ["f"], selector={"execution.site": site})])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((workflow_text([job("x", "b", ["f"])]), SITES, REPLICAS, PROGRAMS),
         "job x: transformation 't::b:1.0' is not in the transformation catalog, did you mean"),
        ((FLOW, SITES, REPLICAS, transformations_text({"a": ["moon"]})),
         "job x: no site can run t::a:1.0: it is at moon"),
        ((_hint("mo"), SITES, REPLICAS, PROGRAMS),
         "job x: profile execution.site 'mo' is not in the site catalog"),
        ((_hint("local"), SITES, REPLICAS, PROGRAMS),
         "job x: profile execution.site asks for 'local', but t::a:1.0 can run at mu, tacc"),
        ((FLOW, SITES, replicas_text({"h": ("mu", 1)}), PROGRAMS),
         "job x: input 'f' is written by no job and has no replica"),
        ((workflow_text([job("x", "a", ["f"], env={"adon.rate": 1})]), SITES, REPLICAS, PROGRAMS),
         "job x: found 'adon.rate' in profiles: env, expected adon.* only in profiles"),
        ((FLOW, sites_text({"mu": {"adon.rate": "1"}}).replace("    pegasus:", "    env:"),
          REPLICAS, PROGRAMS), "sites.yml:14: site 'mu': found 'adon.rate' in profiles: env, exp"),
        ((FLOW, sites_text({"mu": {"adon.workers": "9" * 5000}}), REPLICAS, PROGRAMS),
         "expected a whole number from 0 to 10,000,000"),
        ((FLOW, "sites: []\n", REPLICAS, PROGRAMS), "site catalog: found no 'pegasus'"),
        ((FLOW, REPLICAS, REPLICAS, PROGRAMS), "sites.yml:1: no list 'sites', expected a"),
        ((FLOW, SITES, "pegasus: '5.0'\nreplicas:\n- {lfn: f, pfns: []}\n", PROGRAMS),
         "job x: input 'f' is written by no job and has no replica"),
        ((FLOW, SITES, REPLICAS,
          PROGRAMS.replace("transformations:", "transformations: []\nx-a:")),
         "transformations: found a list, expected a list of at least 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(texts: tuple[str, str, str, str], message: str) -> None:
    with pytest.raises(InputError) as error:
        inputs_from(*texts)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_catalogs_beside_the_workflow_inside_it_or_missing(tmp_path: Path) -> None:
    path = write_all(tmp_path, FLOW, SITES, REPLICAS, PROGRAMS)
    assert load_inputs(path).candidates == {"x": ("mu", "tacc")}
    inside = yaml.safe_load(FLOW) | {
        "siteCatalog": yaml.safe_load(SITES),
        "replicaCatalog": yaml.safe_load(REPLICAS),
        "transformationCatalog": yaml.safe_load(PROGRAMS),
    }
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "workflow.yml").write_text(yaml.safe_dump(inside, sort_keys=False))
    assert load_inputs(alone / "workflow.yml").raw_bytes == {"f": 100}
    (alone / "workflow.yml").write_text(FLOW)
    with pytest.raises(InputError, match=r"found no transformation catalog, expected one in the"):
        load_inputs(alone / "workflow.yml")


def test_what_pegasus_writes_is_read(tmp_path: Path) -> None:
    """The Pegasus API itself writes the four files."""
    api = pytest.importorskip("Pegasus.api")
    raw, out = api.File("raw", size=1234), api.File("out")
    flow = api.Workflow("made", infer_dependencies=True)
    flow.add_jobs(
        api.Job("align", namespace="soykb", version="1.0", _id="ID1")
        .add_inputs(raw)
        .add_outputs(out, stage_out=True)
        .add_selector_profile(execution_site="mu")
        .add_pegasus_profile(runtime=90)
    )
    sites = api.SiteCatalog()
    mu = api.Site("mu", arch=api.Arch.X86_64, os_type=api.OS.LINUX)
    mu.add_directories(
        api.Directory(api.Directory.SHARED_SCRATCH, "/scratch").add_file_servers(
            api.FileServer("gsiftp://mu/scratch", api.Operation.ALL)
        )
    )
    mu.add_profiles(api.Namespace.PEGASUS, key="adon.workers", value=8)
    sites.add_sites(mu)
    replicas = api.ReplicaCatalog().add_replica("mu", raw, "/data/raw")
    programs = api.TransformationCatalog().add_transformations(
        api.Transformation("align", namespace="soykb", version="1.0", site="mu", pfn="/bin/align")
    )
    for name, catalog in {
        "workflow": flow, "sites": sites, "replicas": replicas, "transformations": programs,
    }.items():  # fmt: skip
        catalog.write(str(tmp_path / f"{name}.yml"))
    inputs = load_inputs(tmp_path / "workflow.yml")
    align_job = inputs.workflow.jobs["ID1"]
    assert (align_job.transformation, align_job.runtime_s, align_job.site_hint) == (
        "soykb::align:1.0", 90, "mu",
    )  # fmt: skip
    assert inputs.raw_bytes == {"raw": 1234}
    assert inputs.sites["mu"].hints.workers == 8
