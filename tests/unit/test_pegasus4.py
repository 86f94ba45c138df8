"""Workflows and catalogs in the forms of Pegasus 4, which pegasus-plan 5.1 reads as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from network_provisioner.base.errors import InputError
from pegasus_hooks.pegasus_plan import properties_text
from pegasus_hooks.provisioning.insertion import provisioned_workflow
from site_selector.catalogs.documents import parse_document
from site_selector.catalogs.entries import replicas_of, sites_of, transformations_of
from site_selector.catalogs.sources import Sources
from site_selector.catalogs.workflow import DataFile, Workflow, parse_workflow
from site_selector.inputs import read_inputs
from site_selector.mapping.hinted import hinted_copy
from site_selector.mapping.placement import Mapping, Placement

DAX = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- generator: python -->
<d:adag xmlns:d="http://pegasus.isi.edu/schema/DAX" version="3.6" name="leaves">
  <d:file name="raw.txt"><d:metadata key="size">2048</d:metadata>
    <d:pfn url="file:///data/raw.txt" site="local"/></d:file>
  <d:executable namespace="t" name="count" version="1.0" arch="x86_64" os="LINUX" installed="false">
    <d:profile namespace="env" key="LC_ALL">C</d:profile>
    <d:pfn url="file:///bin/count" site="local"/></d:executable>
  <d:job id="ID1" namespace="t" name="count" version="1.0">
    <d:argument>-i <d:file name="raw.txt"/> &lt;all&gt;</d:argument>
    <d:profile namespace="pegasus" key="runtime">60</d:profile>
    <d:stdout name="n.txt" link="output"/>
    <d:uses name="raw.txt" link="input" size="1000"/>
    <d:uses name="n.txt" link="output" transfer="false" register="false"/>
    <d:uses namespace="t" name="count" version="1.0" link="input" executable="true"/>
  </d:job>
  <d:dax id="ID2" file="inner.dax"><d:argument>--force</d:argument></d:dax>
  <d:job id="ID3" namespace="t" name="count" version="1.0"/>
  <d:child ref="ID2"><d:parent ref="ID1"/></d:child>
  <d:child ref="ID3"><d:parent ref="ID1"/><d:parent ref="ID2"/></d:child>
</d:adag>
"""
SITES = """\
<sitecatalog xmlns="http://pegasus.isi.edu/schema/sitecatalog" version="4.0">
  <site handle="mu" arch="x86_64" os="LINUX" osrelease="rhel" osversion="7">
    <grid type="batch" contact="slurm mu" scheduler="SLURM" jobtype="compute"/>
    <directory type="shared-scratch" path="/scratch" free-size="1G">
      <file-server operation="put" url="gsiftp://dtn.mu/scratch"/>
      <file-server operation="get" url="https://dtn.mu" mount-point="/scratch"/>
    </directory>
    <profile namespace="pegasus" key="adon.workers">12</profile>
  </site>
</sitecatalog>
"""
PROGRAMS = """\
# made by hand
tr t::count:1.0 {
  profile pegasus "runtime" "60"
  metadata "about" "leaves"
  site mu {
    profile env "TITLE" "a \\"b\\" # {c}"
    pfn "/opt/count"   # installed
    arch "x86_64" os "LINUX" osrelease "rhel"
    type "STAGEABLE" container "base"
  }
  site local { pfn "file:///bin/count" type "INSTALLED" }
}
tr sum { site mu { pfn "/opt/sum" } }
cont base { type "docker" image "docker:///base" mount "/data:/data"
            profile pegasus "data.configuration" "sharedfs" }
"""


def test_a_workflow_in_xml() -> None:
    flow = parse_workflow(DAX, "w.dax")
    first, inner, _ = flow.jobs.values()
    assert (flow.name, first.transformation, first.runtime_s) == ("leaves", "t::count:1.0", 60)
    assert (inner.kind, inner.inputs) == ("pegasusWorkflow", ("inner.dax",))
    assert flow.files["raw.txt"] == DataFile("raw.txt", 1000, None, ("ID1",), False)
    assert flow.files["n.txt"] == DataFile("n.txt", None, "ID1", (), False, True)
    assert flow.parents == {"ID1": (), "ID2": ("ID1",), "ID3": ("ID1", "ID2")}
    raw = flow.document.root["jobs"][0]
    assert (raw["arguments"], raw["stdout"]) == (["-i raw.txt <all>"], "n.txt")
    (program,) = transformations_of(flow.document, ("transformationCatalog",)).values()
    assert [(e.site, e.stageable, e.os) for e in program.executables] == [("local", True, "linux")]
    replica = replicas_of(flow.document, ("replicaCatalog",)).entries["raw.txt"]
    assert (replica.places, replica.size_bytes) == ((("local", "file:///data/raw.txt"),), 2048)


@pytest.mark.parametrize("version", ["1.10", "2.1"])
def test_files_have_other_names_before_dax_3(version: str) -> None:
    flow = parse_workflow(
        f'<adag version="{version}" name="w">'
        '<filename file="f.a" link="input"/>'
        '<job id="ID1" name="x" level="1"><argument>-i <filename file="f.a"/></argument>'
        '<uses file="f.a" link="input" dontTransfer="false"/><uses file="x" type="executable"/>'
        '<uses file="f.b" link="output" dontTransfer="true" dontRegister="true"/></job></adag>'
    )
    assert flow.jobs["ID1"].outputs == ("f.b",)
    assert not flow.files["f.b"].stage_out
    assert flow.document.root["jobs"][0]["arguments"] == ["-i f.a"]


def test_a_site_catalog_in_xml_says_what_yaml_does() -> None:
    yaml = """\
pegasus: "5.0"
sites:
- name: mu
  arch: x86_64
  os.type: linux
  os.release: rhel
  os.version: "7"
  grids: [{type: batch, contact: slurm mu, scheduler: slurm, jobtype: compute}]
  directories:
  - type: sharedScratch
    path: /scratch
    freeSize: 1 GB
    fileServers:
    - {url: "gsiftp://dtn.mu/scratch", operation: put}
    - {url: "https://dtn.mu/scratch", operation: get}
  profiles: {pegasus: {adon.workers: "12"}}
"""
    both = [sites_of(parse_document(text, "sites", "site catalog")) for text in (SITES, yaml)]
    assert both[0] == both[1]


def test_a_transformation_catalog_as_text_says_what_yaml_does() -> None:
    yaml = """\
pegasus: "5.0"
transformations:
- namespace: t
  name: count
  version: "1.0"
  profiles: {pegasus: {runtime: "60"}}
  sites:
  - {name: mu, pfn: /opt/count, arch: x86_64, os.type: linux, os.release: rhel, type: stageable,
     container: base, profiles: {env: {TITLE: 'a "b" # {c}'}}}
  - {name: local, pfn: "file:///bin/count", type: installed}
- name: sum
  sites: [{name: mu, pfn: /opt/sum, type: installed}]
containers:
- name: base
  type: docker
  image: docker:///base
  profiles: {pegasus: {data.configuration: sharedfs}}
"""
    both = [transformations_of(parse_document(text, "tc", "catalog")) for text in (PROGRAMS, yaml)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DAX.replace('ref="ID2"/>', 'ref="ID9"/>'), "x:20: dependency names the unknown job 'ID9'"),
        (DAX.replace('size="1000"', 'size="big"'), "x:13: size of 'raw.txt' is 'big'"),
        (DAX.replace("</d:dax>", ""), "x:21: not valid XML: mismatched tag"),
        (
            DAX.replace("<!--", '<!DOCTYPE adag [<!ENTITY a "b">]><!--'),
            "x:2: found a document type",
        ),
    ],
)
def test_errors_in_xml_name_the_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_workflow(text, "x")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tr a {\n site mu {\n pfn /x\n}}", "x:3: found '/x', expected a value in quotes"),
        ("tr a {\n sites mu { }\n}", "x:2: found 'sites', expected one of profile, metadata, site"),
        ('tr a {\n site mu { pfn "/x"\n', "x:2: found the end, expected '}'"),
        ('tr a { site mu { pfn "/x" } }\n}', "x:2: found '}', expected 'tr' or 'cont'"),
        ('tr a { site mu { pfn "/x } }', "x:1: found '\"/x } }', expected text in quotes"),
    ],
)
def test_errors_in_text_name_the_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_document(text, "x", "transformation catalog")
    assert str(caught.value).startswith(message)


def placed(*jobs: str) -> Mapping:
    placements = tuple(Placement(job, "x", "mu", priority=7) for job in jobs)
    return Mapping("leaves", "heft", 1.0, {}, placements)


def hinted(text: str, tmp_path: Path, *jobs: str) -> tuple[str, Workflow]:
    (tmp_path / "w.dax").write_text(text)
    hinted_copy(tmp_path / "w.dax", placed(*jobs), tmp_path / "out.dax", {"HOME": "/home/ada"})
    return (tmp_path / "out.dax").read_text(), parse_workflow((tmp_path / "out.dax").read_text())


def test_sites_and_priorities_are_put_into_xml(tmp_path: Path) -> None:
    text, flow = hinted(DAX.replace("file:///data", "file://${HOME}"), tmp_path, "ID1", "ID3")
    assert [job.site_hint for job in flow.jobs.values()] == ["mu", None, "mu"]
    assert flow.jobs["ID3"].profiles["condor"] == {"priority": "7"}
    assert "file:///home/ada/raw.txt" in text
    added = '<d:profile namespace="selector" key="execution.site">mu</d:profile>'
    assert text.count(added) == 2
    rest = text.replace(added, "").replace(
        '<d:profile namespace="condor" key="priority">7</d:profile>', ""
    )
    assert rest.replace('version="1.0"></d:job>', 'version="1.0"/>') == DAX.replace(
        "file:///data", "file:///home/ada"
    )
    with pytest.raises(InputError, match="the mapping places job 'ID9'"):
        hinted(DAX, tmp_path, "ID9")


def test_they_are_found_mapped_and_handed_on_as_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inner = 'inner.dax file:///data/inner.dax site="local"'
    sites = SITES.replace('osrelease="rhel" osversion="7"', "")
    files = {"w.dax": DAX, "sites.xml": sites, "tc.txt": PROGRAMS, "rc.txt": inner}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    sources = Sources(tmp_path / "w.dax")
    assert read_inputs(sources).candidates["ID3"] == ("mu",)
    said = properties_text(sources).splitlines()
    assert {"pegasus.catalog.site=XML", "pegasus.catalog.transformation=Text"} <= set(said)
    options: Any = None
    with pytest.raises(InputError, match="found XML, expected YAML, into which jobs can"):
        provisioned_workflow(parse_document(DAX, "w.dax", "workflow"), None, options, ())
