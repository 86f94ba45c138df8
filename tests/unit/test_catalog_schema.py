"""What pegasus-plan 5.1.3 takes in workflows and catalogs, and what it refuses."""

from __future__ import annotations

import pytest

from network_provisioner.base.errors import InputError
from site_selector.catalogs.documents import parse_document
from site_selector.catalogs.entries import replicas_of, sites_of, transformations_of
from site_selector.catalogs.workflow import parse_workflow

DIRECTORY = "{type: sharedScratch, path: /x, fileServers: [{url: 'file:///x', operation: all}]}"
GRID = "{type: batch, contact: c, scheduler: slurm}"
PLACE = "name: a, type: installed, pfn: /a"
BOX = "name: c, type: docker, image: 'docker:///a'"


def site(more: str) -> str:
    return f"pegasus: '5.0'\nsites:\n- name: a\n  {more}\n"


def program(more: str = "", place: str = PLACE, box: str = BOX) -> str:
    return (
        f"pegasus: '5.0'\ntransformations:\n- name: t\n  sites: [{{{place}}}]\n"
        f"  {more}\ncontainers: [{{{box}}}]\n"
    )


def replica(more: str) -> str:
    return f"pegasus: '5.0'\nreplicas:\n- {{{more}}}\n"


def flow(job: str = "", use: str = "", top: str = "") -> str:
    uses = f"uses: [{{lfn: f, type: output{use}}}]"
    return f"name: w\n{top}\njobs:\n- {{id: j, name: t, type: job, arguments: [], {uses}{job}}}\n"


def read(text: str) -> None:
    if "jobs:" in text:
        workflow = parse_workflow(text, "f")
        for key, reader in (
            ("siteCatalog", sites_of),
            ("transformationCatalog", transformations_of),
        ):
            if key in workflow.document.root:
                reader(workflow.document, (key,))
        return
    document = parse_document(text, "f", "x")
    if "sites" in document.root:
        sites_of(document)
    elif "replicas" in document.root:
        replicas_of(document)
    else:
        transformations_of(document)


@pytest.mark.parametrize(
    "text",
    [
        site(f"directories: [{DIRECTORY}]") + "x-pegasus: {apiLang: python}\n",
        site(f"grids: [{GRID}]"),
        site("x-tags: [{name: fast, profiles: {condor: {a: b}}, more: 1}]"),
        site("profiles: {x-a: 1, condor: {+A: 1, x-b: [1]}, env: {x-c: true}, hints: {a: b}}"),
        site("profiles: {condor: {priority: 10 + 3}}"),
        site("profiles: {pegasus: {a: }}"),
        site("os.version: '7.1'"),
        program("hooks: {shell: [{_on: end, cmd: a}]}", PLACE + ", container: c, bypass: true"),
        program("version: '1.0'"),
        program("metadata: {size: 5, 'a b': c}", box=BOX + ", profiles: {pegasus: {runtime: 5}}"),
        replica("lfn: f, pfns: [], regex: yes, metadata: {size: 5}, checksum: {sha256: a}"),
        '{"pegasus": "5.0", "replicas": [{"lfn": "5", "pfns": [], "regex": true}]}',
        flow(", nodeLabel: a, stdin: b, metadata: {a: true}", ", bypass: 'true'", "x-a: 1"),
        flow(", profiles: {metadata: {a: b}, pegasus: {a: true}}", ", forPlanning: true"),
        # Inside a workflow no types are known, and nothing has to be there.
        flow(top="siteCatalog: {sites: [{name: 5, os.version: sl7}], x-a: 1}"),
        flow(top="siteCatalog: {}\ntransformationCatalog:"),
        flow(top="transformationCatalog: {transformations: [{name: t, sites: [{name: a}]}],"
                 " containers: [{name: c, dockerfile: d}]}"),
    ],
)  # fmt: skip
def test_what_pegasus_takes(text: str) -> None:
    read(text)
    read("\ufeff" + text if text[0] != "{" else text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (site("direktories: []"), "f:4: site catalog: sites[0]: found the key 'direktories', "
                                  "did you mean 'directories'?"),
        (site("x-flavour: 1"), "found the key 'x-flavour', expected one of name, arch"),
        (site("x-tags: [{profiles: {}}]"), "found a tag in 'x-tags' without a name"),
        (site("arch: arm"), "sites[0].arch: found 'arm', expected x86, x86_64"),
        (site("arch:"), "sites[0].arch: found nothing, expected x86"),
        (site("os.version: sl7"), "os.version: found 'sl7', expected a version such as '5.0'"),
        (site("os.version: 7"), "os.version: found the number, expected it in quotes"),
        (site("directories: [{type: sharedScratch}]"), "directories[0]: found no 'fileServers'"),
        (site("directories:"), "sites[0].directories: found nothing, expected a list"),
        (site(f"grids: [{GRID[:-1]}, idleNodes: '4'}}]"),
         "idleNodes: found text, expected a number"),
        (site("profiles: {pegasus: {a: true}}"), "profiles.pegasus.a: found the boolean"),
        (site("profiles: {pegasus: {'a b': 1}}"), "found the key 'a b', expected letters"),
        (site("profiles: {Condor: {a: 1}}"), "found the key 'Condor', did you mean 'condor'?"),
        ("sites: [{name: a}]", "f:1: site catalog: found no 'pegasus', expected one"),
        ("pegasus: 5.0\nsites: [{name: a}]", "pegasus: found the number, expected it in quotes"),
        ("pegasus: '5.0'\nsites: []", "sites: found a list, expected a list of at least 1"),
        (program(place="name: a, pfn: /a"), "transformations[0].sites[0]: found no 'type'"),
        (program(place="name: a, type: installed"), "found no 'pfn', expected one"),
        (program(place=PLACE + ", container: d"), "t: found no container 'd' in the catalog"),
        (program("version: 1.0"), "transformations[0].version: found the number"),
        (program("metadata: {}"), "found an empty mapping, expected at least one key"),
        (program("hooks: {shell: [{_on: now, cmd: a}]}"), "_on: found 'now', expected never"),
        (program(box="name: c, image: i"), "containers[0]: found no 'type'"),
        (program(box=BOX + ", mounts: a"), "mounts: found 'a', expected a list"),
        (replica("lfn: f"), "replicas[0]: found no 'pfns'"),
        (replica("lfn: f, pfns: [{site: a, pfn: b, size: 1}]"), "pfns[0]: found the key 'size'"),
        (replica("lfn: f, pfns: [], regex: 'true'"),
         "regex: found text, expected a boolean, without quotes"),
        ('{"pegasus": "5.0", "replicas": [{"lfn": 5, "pfns": []}]}', "lfn: found the number"),
        (flow(", transformation: t"), "job j: found the key 'transformation'"),
        (flow(", x-a: 1"), "job j: found the key 'x-a', expected one of id, type"),
        (flow(use=", stageout: true"),
         "file 'f': found the key 'stageout', did you mean 'stageOut'?"),
        (flow(", profiles: {stat: {a: b}}"), "job j: profiles: found the key 'stat'"),
        (flow(", hooks: {mail: []}"), "job j: hooks: found the key 'mail'"),
        (flow(top="profiles: {env: {a: b}}"),
         "workflow: found the key 'profiles', expected one of"),
        (flow(top="jobDependencies:"), "jobDependencies is no list"),
        (flow().replace("arguments: []", "arguments: a"), "job j: 'arguments' is no list"),
        (flow(top="siteCatalog: {sites: [{name: a, foo: 1}]}"), "sites[0]: found the key 'foo'"),
        (flow(top="siteCatalog: {sites: [{name: a, arch: arm}]}"), "arch: found 'arm'"),
    ],
)  # fmt: skip
def test_what_pegasus_refuses(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
