"""URLs of jobs: which sites they are of, what servers say of them, what fetching them came to."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from file_server import FileServer
from hypothesis import given
from hypothesis import strategies as st
from irods.password_obfuscation import encode
from made_transit import made_transit
from transfers_world import AD, JOB

from condor_plugins.jobs.jobad import bytes_sent, urls
from condor_plugins.jobs.request_builder import Run, is_url, parsed
from condor_plugins.urls import sizes, sources, transfer_history
from condor_plugins.urls.sources import UrlPath, paths_of, url_paths, written
from condor_plugins.urls.transfer_history import SiteDownload, UsualRates, slow
from examples.testbed.irods_zone import Zone
from network_provisioner.base.model import Service, TransitState
from network_provisioner.base.urls import host_of, scheme_of, site_of_url
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import RequestOutcome

SOURCES = {
    "https://data.example.org/": "tacc",
    "https://data.example.org/mu": "mu",
    "osdf:///ospool/": "uchicago",
    "irods://data.cyverse.org/": "iplant",
    "osdf-cache.example.org": "uchicago",
}
CONFIG = HookConfig("http://127.0.0.1:1", site="local", sources=SOURCES)
RUN = Run(JOB, 3)
PATIENT_S = 300.0  # far above what any answer takes


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://data.example.org/a", "tacc"),
        ("https://data.example.org/mu/a", "mu"),
        ("https://data.example.org/mu", "mu"),
        ("https://data.example.org/muse", "tacc"),
        ("https://data.example.org.evil.net/a", ""),
        ("https://data.example.org@evil.net/a", ""),
        ("http://data.example.org/a", ""),
        ("cred+https://data.example.org/a", "tacc"),
        ("osdf:///ospool/a", "uchicago"),
        ("osdf:///other/a", ""),
        ("http://OSDF-cache.example.org:8443/x", "uchicago"),
        ("irods://data.cyverse.org/zone/a", "iplant"),
        ("http://[bad/a", ""),
        # One place, several spellings.
        ("HTTPS://DATA.example.org.:443/a", "tacc"),
        ("https://data.example.org:8443/a", ""),
        ("https://ada:secret@data.example.org/mu/a", "mu"),
        ("https://data.example.org/%6d%75/a", "mu"),
        ("https://data.example.org/x/../mu/./a?signed=/", "mu"),
        ("https://data.example.org/mu/%2e%2e/a", "tacc"),
        ("https://data.example.org/mu%2Fa", "tacc"),
        ("https://data.example.org//mu//a", "mu"),
        ("https://data.example.org/mu#1/a", "tacc"),
        ("osdf:/ospool/a", "uchicago"),
        ("osdf://ospool/a", "uchicago"),
        ("stash:/ospool/a", "uchicago"),
        ("STASH:///ospool/a", "uchicago"),
        ("pelican://osg-htc.org/ospool/a", "uchicago"),
        ("pelican://OSG-htc.org:443/ospool/a", "uchicago"),
        ("token+pelican://osg-htc.org/ospool/a", "uchicago"),
        ("token+osdf:/ospool/a", "uchicago"),
        ("stashcp:///ospool/a", "uchicago"),
        ("pelican://elsewhere.org/ospool/a", ""),
        ("pelican://osg-htc.org/ospoolx/a", ""),
        ("osdf:///OSPOOL/a", ""),
        ("irods://ada@data.cyverse.org:1247/zone/a", "iplant"),
        ("osdf://osg-htc.org/ospool/a", "uchicago"),
        ("davs://data.example.org:443/mu/a", "mu"),
        ("webdavs://data.example.org/mu/a", "mu"),
        ("webdav://data.example.org/mu/a", ""),
    ],
)
def test_the_longest_prefix_names_the_site_else_the_host(url: str, site: str) -> None:
    assert site_of_url(url, SOURCES) == site


@pytest.mark.parametrize(
    "prefix",
    ["osdf:/ospool", "stash:///ospool/", "pelican://osg-htc.org/ospool", "OSDF:///%6fspool/./"],
)
def test_prefixes_have_several_spellings_too(prefix: str) -> None:
    assert site_of_url("osdf:///ospool/a", {prefix: "uchicago"}) == "uchicago"
    assert site_of_url("osdf:///ospools/a", {prefix: "uchicago"}) == ""


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("https://[2001:db8::1]/", "https://[2001:DB8:0::1]:443/a"),
        ("root://data.example.org//store", "xroot://data.example.org:1094/store/a"),
        ("root://data.example.org//store", "xrootd://data.example.org//store/a"),
        ("/data", "//data/a"),
        ("/data", "symlink:///data/a"),
        ("scp://ada@data.example.org/data", "sftp://data.example.org:22/data/a"),
    ],
)
def test_addresses_protocols_and_slashes_have_several_spellings(prefix: str, url: str) -> None:
    assert site_of_url(url, {prefix: "mu"}) == "mu"


def test_paths_are_those_of_file_urls() -> None:
    sources = {"file://localhost/data/": "mu", "Cache.Example.org": "tacc"}
    for url in ("/data/run#7?/a", "file:/data/a", "file:///data/a"):
        assert site_of_url(url, sources) == "mu"
    assert site_of_url("/database/a", sources) == ""
    assert site_of_url("https://cache.example.org/a", sources) == "tacc"


def test_what_comes_from_elsewhere_is_what_urls_name(tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(b"x" * 10)
    ad: dict[str, Any] = {
        "Iwd": str(tmp_path), "TransferInput": "own, https://a/1, https://a/1 ,file:///etc/motd",
        "CommonInputFiles": "https://a/2,own", "ClusterId": 7,
    }  # fmt: skip
    assert urls(ad) == ["https://a/1", "https://a/2"]
    assert bytes_sent(ad) == 20
    # What the jobs of a machine share its own shadow has fetched, once for all of them.
    shared = {**ad, "RequestedCatalogs": "x", "RemoteHost": "slot1_2@node"}
    assert urls(shared) == ["https://a/1"]
    assert urls({**ad, "ProcId": -1000}) == ["https://a/2"]
    assert urls({**ad, "ProcId": -1000, "TransferTheseCatalogs": '"other@1"'}) == []


def test_one_path_for_each_site() -> None:
    there = ["https://data.example.org/a", "https://data.example.org/b", "https://x.net/c",
             "osdf:///other/d", "https://data.example.org/mu/e"]  # fmt: skip
    known = {there[0]: 10, there[1]: 20, there[3]: 5}
    served = {there[3]: "https://osdf-cache.example.org:8443/other/d"}
    paths, unknown = url_paths(there, known, served, RUN, CONFIG)
    assert paths == [
        UrlPath(f"condor:{JOB}:in@mu:3", "mu", None, "data.example.org"),
        UrlPath(f"condor:{JOB}:in@tacc:3", "tacc", 30, "data.example.org"),
        UrlPath(f"condor:{JOB}:in@uchicago:3", "uchicago", 5, "osdf-cache.example.org"),
    ]
    assert unknown == "no site is known of x.net"
    ad = {**AD, "NumShadowStarts": 3}
    assert paths_of({**ad, "AdonUrlPaths": written(paths)}) == paths
    others = replace(paths[0], id=f"condor:{JOB.replace('12.0', '13.0')}:in@mu:3")
    assert paths_of({**ad, "AdonUrlPaths": written([others, paths[1]])}) == [paths[1]]
    junk = ["[", "[" * 100_000, "7", "[7]", "[[]]", '[["x", "y", Infinity, "z", 1]]', '[{"a": 1}]']
    assert not any(paths_of({**ad, "AdonUrlPaths": text}) for text in junk)
    request = sources.url_request(AD, RUN, paths[1], CONFIG)
    assert (request.id, request.src, request.dst, request.size_bytes, request.src_host) == (
        paths[1].id, "tacc", "tacc", 30, "data.example.org",
    )  # fmt: skip
    many = [f"https://h{n}/" for n in range(5)]
    assert url_paths(many, {}, {}, RUN, CONFIG)[1] == "no site is known of h0, h1, h2 and 2 more"


def test_plug_ins_are_told_of_the_fastest_path() -> None:
    slow, fast = (UrlPath(RUN.transit("in", site), site, None, "") for site in ("mu", "tacc"))
    score = {"path": ["tacc", "s1"], "scores": {"delay": {"value": 0.05}}}
    got = made_transit("x.2", "tacc", "mu", TransitState.INSTALLED, path=["tacc", "s1"],
                  granted_bps=5e8, candidates=[{"path": [], "scores": {}}, score])  # fmt: skip
    answers = [RequestOutcome(slow.id, "queued"), RequestOutcome("x.2", "installed", transit=got)]
    said = sources.hook_attributes([slow, fast], answers, [Service(threads=2), Service(threads=8)])
    assert said == {
        "AdonUrlPaths": written([slow, replace(fast, id="x.2", granted_bps=5e8)]),
        "AdonStreams": 8, "AdonRateBps": 5e8, "AdonRttSeconds": 0.05,
    }  # fmt: skip
    assert sources.hook_attributes([slow], answers[:1], []) == {"AdonUrlPaths": written([slow])}


@given(st.text(min_size=1, max_size=20), st.integers(1, 999), st.sampled_from(["", ".2"]))
def test_ids_of_such_paths_are_known_again(site: str, starts: int, again: str) -> None:
    run = Run(JOB, starts)
    name = run.transit("in", site) + again
    assert parsed(name) == (run, "in")
    assert is_url(name)
    assert not is_url(run.transit("in") + again)


def described(config: HookConfig, *there: str, **ad: Any) -> sizes.UrlFacts:
    return sizes.facts({**AD, **ad}, there, config, most_s=PATIENT_S)


def named(server: FileServer, **more: Any) -> HookConfig:
    return HookConfig("http://127.0.0.1:1", sources={f"{server.url}/": "tacc"}, **more)


def test_servers_tell_sizes_and_those_who_do_not_are_left() -> None:
    files = {"/a": b"x" * 1000, "/b": "/a", "/loop": "/loop", "/no": 403, "/broken": "",
             "/ftp": "ftp://127.0.0.1/a"}  # fmt: skip
    with FileServer(files) as server:
        there = [f"{server.url}{path}" for path in (*files, "/gone")]
        # Whatever one of them does, the others are known.
        known = described(
            named(server), *there, f"{server.url}/a?signed=x", "x://y/z", "http://[bad/x"
        )
        assert known.sizes == {
            there[0]: 1000, there[1]: 1000, f"{server.url}/a?signed=x": 1000,
        }  # fmt: skip
        assert {request.split()[0] for request in server.asked} == {"HEAD"}


def test_a_server_that_hangs_is_left_when_time_is_up() -> None:
    with FileServer({"/never": None}) as server:
        there = [f"{server.url}/never?{number}" for number in range(40)]
        assert sizes.facts(AD, there, named(server), most_s=0.2) == sizes.UrlFacts()


def test_https_is_asked_where_the_server_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("server", hosts=["127.0.0.1"])
    with FileServer({"/a": b"x" * 1000}, certificate) as server:
        sizes._trusted.cache_clear()
        assert described(named(server), f"{server.url}/a").sizes == {}
        monkeypatch.setenv("SSL_CERT_FILE", authority.file)
        sizes._trusted.cache_clear()
        assert described(named(server), f"{server.url}/a").sizes == {f"{server.url}/a": 1000}
    sizes._trusted.cache_clear()


def test_nobody_is_sent_to_where_this_machine_alone_may_go() -> None:
    """A site's name stands for a server that it says is its own, and not for its redirections."""
    with FileServer({"/secret": b"x"}) as inside:
        elsewhere = inside.url.replace("127.0.0.1", "localhost")
        with FileServer({"/a": f"{elsewhere}/secret"}) as server:
            assert described(named(server), f"{server.url}/a").sizes == {}
            anywhere = HookConfig("http://127.0.0.1:1", sources={"http://": "tacc"})
            assert described(anywhere, f"{inside.url}/secret", f"{elsewhere}/secret").sizes == {}
            assert server.asked == ["HEAD /a"]
        assert inside.asked == []
        own = HookConfig("http://127.0.0.1:1", sources={"localhost": "tacc"})
        assert described(own, f"{elsewhere}/secret").sizes == {f"{elsewhere}/secret": 1}


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1",
     "fe80::1%1", "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "ff02::1"],
)  # fmt: skip
def test_every_address_of_a_name_has_to_be_public(address: str) -> None:
    def look_up(*_words: object, **_more: object) -> list[tuple[Any, ...]]:
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 80))
        return [public, (kind, socket.SOCK_STREAM, 6, "", (address, 80))]

    url = sizes.urlsplit("http://data.example.org/a")
    with pytest.raises(OSError, match="expected a public one"):
        sizes.place(url, set(), look_up)
    assert sizes.place(url, {"data.example.org"}, look_up)[4] == ("93.184.215.14", 80)


def test_the_director_names_the_cache() -> None:
    with FileServer({"/ospool/a": b"x" * 7, "/ospool/broken": ""}) as cache:
        files = {path: f"{cache.url}{path}" for path in cache.files}
        with FileServer(files) as director:
            config = named(cache, redirector=director.url + "/")
            there = ["osdf:///ospool/a", "osdf://ospool/a", "stash:///ospool/broken"]
            there += ["pelican://osg-htc.org/ospool/a", "osdf:///ospool/gone"]
            known = described(config, *there)
            assert known.sizes == dict.fromkeys([there[0], there[1], there[3]], 7)
            assert known.cache_urls == {
                **dict.fromkeys([there[0], there[1], there[3]], f"{cache.url}/ospool/a"),
                there[2]: f"{cache.url}/ospool/broken",
            }
            paths, unknown = url_paths(there, known.sizes, known.cache_urls, RUN, config)
            assert [(p.site, p.host) for p in paths] == [("tacc", "127.0.0.1")]
            assert unknown == "no site is known of osdf"
            assert described(named(cache), *there) == sizes.UrlFacts()  # nobody to ask


def test_the_plan_knows_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "map_1.in.meta").write_text(
        json.dumps([{"_id": "a.fq", "_attributes": {"size": "77"}}])
    )
    with FileServer({"/d/a.fq": b"x", "/d/b.fq": b"xx"}) as server:
        there = [f"{server.url}/d/a.fq?x=1", f"{server.url}/d/b.fq"]
        job = {
            "pegasus_wf_uuid": "u",
            "DAGNodeName": "map_1",
            "Cmd": "map_1.sh",
            "Iwd": str(tmp_path),
        }
        assert described(named(server), *there, **job).sizes == {there[0]: 77, there[1]: 2}
        assert server.asked == ["HEAD /d/b.fq"]


def test_a_zone_of_irods_tells_sizes_to_who_may_know(tmp_path: Path) -> None:
    home = tmp_path / "job"
    home.mkdir()
    with Zone(tmp_path / "zone") as zone:
        zone.put("/tempZone/home/rods/reads.fq", b"x" * 321)
        account = {"irods_host": "127.0.0.1", "irods_port": zone.port, "irods_user_name": "rods",
                   "irods_zone_name": "tempZone"}  # fmt: skip
        (home / "irods_environment.json").write_text(json.dumps(account))
        (home / ".irodsA").write_text(encode("secret"))
        place = f"irods://127.0.0.1:{zone.port}"
        there = [f"{place}/tempZone/home/rods/{name}" for name in ("gone", "reads.fq")]
        own = HookConfig("http://127.0.0.1:1", sources={f"{place}/tempZone": "iplant"})
        assert described(own, *there, Iwd=str(home)).sizes == {there[1]: 321}
        # Nobody named that server.
        calls = zone.calls.copy()
        prefix = HookConfig("http://127.0.0.1:1", sources={"irods://": "iplant"})
        assert described(prefix, *there, Iwd=str(home)).sizes == {}
        assert zone.calls == calls
        (home / ".irodsA").write_text(encode("wrong"))
        assert described(own, *there, Iwd=str(home)).sizes == {}


# As HTCondor 25.14 keeps it, with what Pelican's client 7.20 writes.
PELICAN = {
    "TransferUrl": "osdf:///ospool/a.dat", "TransferType": "download", "TransferProtocol": "osdf",
    "TransferFileName": "a.dat", "TransferSuccess": True, "TransferFileBytes": 1_000_000_000,
    "TransferTotalBytes": 1_000_000_000, "TransferStartTime": 1795449600,
    "TransferEndTime": 1795449640,
    "DeveloperData": {
        "PelicanClientVersion": "7.20.0", "Attempts": 2,
        "Endpoint0": "dead-cache.example.org:8443", "TransferError0": "connection refused",
        "Endpoint1": "osdf-cache.example.org:8443", "ServerVersion1": "7.20.0",
        "TimeToFirstByte1": 0.5, "TransferTime1": 39.5, "DataAge1": 12.0,
        "TransferFileBytes1": 1_000_000_000, "TransferEndTime1": 1795449640,
    },
}  # fmt: skip
CURL = {
    "TransferUrl": "https://data.example.org/b", "TransferType": "download",
    "TransferProtocol": "https", "TransferSuccess": True, "TransferFileBytes": 5,
    "TransferTotalBytes": 5, "TransferStartTime": 1795449600, "TransferEndTime": 1795449600,
    "ConnectionTimeSeconds": 0.06,
    "DeveloperData": {"TransferTries": 1, "TransferHostName": "data.example.org",
                      "TransferHTTPStatusCode": 200},
}  # fmt: skip
HISTORY = {
    "TransferClass": "INPUT", "InputPluginResultList": [PELICAN, CURL],
    "InputPluginInvocations": [{"Schemes": "osdf", "DurationInSeconds": 40},
                               {"Schemes": "https", "DurationInSeconds": 0}],
}  # fmt: skip


def test_the_history_tells_what_came_from_where() -> None:
    transfers = transfer_history.url_transfers(HISTORY, SOURCES)
    assert transfers == {
        "uchicago": SiteDownload(
            10**9, 1795449600.0, 1795449640.0, 0.5, "osdf-cache.example.org", missed=False
        ),
        "tacc": SiteDownload(5, 1795449600.0, 1795449600.0),
    }
    assert transfers["uchicago"].seconds(50.0) == 40.0
    assert transfers["tacc"].seconds(0.25) == 0.25  # its times are whole seconds
    assert transfer_history.plugins_s(HISTORY) == 40
    assert transfer_history.url_transfers({}, SOURCES) == {}
    # What a plug-in of the user's own says may be anything.
    odd = {**PELICAN, "DeveloperData": {"Attempts": 1, "Endpoint0": "a\x1b[2Jb" * 99}}
    (transfer,) = transfer_history.url_transfers({"InputPluginResultList": [odd]}, SOURCES).values()
    assert transfer.cache.isprintable()
    assert len(transfer.cache) <= 200
    assert transfer_history.url_transfers(
        {"InputPluginResultList": [{"DeveloperData": 7}]}, {}
    ) == {"": SiteDownload()}


def blame(
    granted_bps: float, usual_bps: float = 0.0, waits: bool = False, **developer: float
) -> str:
    file = {**PELICAN, "DeveloperData": {**PELICAN["DeveloperData"], **developer}}  # type: ignore[dict-item]
    transfer = transfer_history.url_transfers({"InputPluginResultList": [file]}, SOURCES)[
        "uchicago"
    ]
    return slow(transfer, 40.0, granted_bps, usual_bps, lambda: waits)


def test_who_is_to_blame_for_what_was_slow() -> None:
    assert blame(300e6) == blame(0.0, 300e6) == blame(0.0) == ""  # 200 Mb/s were reached
    assert blame(1e9) == "slow: network (200 Mb/s of 1 Gb/s granted)"
    assert blame(0.0, 1e9) == "slow: network (200 Mb/s of 1 Gb/s usual)"
    assert blame(1e9, waits=True).startswith("slow: disk of the slot (")
    assert blame(1e9, waits=True, DataAge1=0.0).startswith(
        "slow: cache osdf-cache.example.org, which had to fetch it ("
    )
    assert blame(1e9, TimeToFirstByte1=30.0).startswith(
        "slow: cache osdf-cache.example.org, 30 of 40 s until it sent anything ("
    )
    # Of what took a moment, counted in whole seconds, nobody knows how fast it was.
    assert slow(SiteDownload(10**6, 5.0, 6.0), 1.2, 1e9, 0.0, lambda: True) == ""


def test_a_disk_is_waited_for_where_the_slot_says_so() -> None:
    ad = {"AdonIoWaitFraction": 0.25, "DetectedCpus": 4, "AdonMetricsAt": 100.0}
    assert transfer_history.disk_waits(ad, 90.0)
    assert not transfer_history.disk_waits(ad, 101.0)
    assert not transfer_history.disk_waits({**ad, "AdonIoWaitFraction": 0.1}, 90.0)
    assert not transfer_history.disk_waits({}, 0.0)


def test_what_is_usual_is_the_median_of_the_last_ones() -> None:
    rates = UsualRates()
    assert rates.usual("a", "b") == 0.0
    for rate in (9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7):
        rates.learn("a", "b", rate)
    assert rates.usual("a", "b") == 4


def test_hosts_are_told_in_small_letters() -> None:
    assert host_of("https://Data.Example.org:8443/x") == "data.example.org"


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("HTTPS://a/b", "https"),
        ("my.token+https://a/b", "https"),
        ("osdf:/ospool/x", "osdf"),
        ("file:/scratch/x", "file"),
    ],
)
def test_a_scheme_is_told_without_credentials(url: str, scheme: str) -> None:
    assert scheme_of(url) == scheme
