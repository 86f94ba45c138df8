"""``adon site replicas``: directories, URLs, WebDAV and iRODS collections as a replica catalog."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import yaml
from cli_world import adon, config_file, refusal, write_world
from hypothesis import given
from hypothesis import strategies as st
from irods.password_obfuscation import encode
from irods.session import iRODSSession
from Pegasus.api import ReplicaCatalog
from Pegasus.transfer import Transfer
from wsgidav.wsgidav_app import WsgiDAVApp

from condor_plugins.irods.account import parsed
from condor_plugins.irods.messages import sentence
from examples.testbed.irods_zone import Fault, Zone
from network_provisioner.base.errors import InputError
from network_provisioner.base.urls import site_of_url
from site_selector.catalogs.documents import read_document
from site_selector.catalogs.entries import replicas_of
from site_selector.replicas.catalog import SourceFile, merged, place_of, sha256_of, unnameable
from site_selector.replicas.listings import read_url, read_zone

HI = hashlib.sha256(b"hi").hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files in ``data``, the working directory above it."""
    monkeypatch.chdir(tmp_path)
    files = {"a.fq": b"hi", "deep/er/b 1.fq": b"two", "deep/ü#%.fq": b""}
    for name, content in files.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


SIZES = {"a.fq": "2", "deep/er/b 1.fq": "3", "deep/ü#%.fq": "0"}


def sizes(catalog: dict[str, Any]) -> dict[str, str]:
    return {entry["lfn"]: entry["metadata"]["size"] for entry in catalog["replicas"]}


def served(server: Any) -> Iterator[Any]:
    """Until the test ends."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


# ---------------------------------------------------------------------- directories, the file


def test_a_directory_is_a_catalog_that_pegasus_would_write(folder: Path) -> None:
    ran = adon("site", "replicas", "data", "--checksum", "--output", "replicas.yml")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    catalog = yaml.safe_load((folder / "replicas.yml").read_text())
    assert sizes(catalog) == SIZES
    theirs = ReplicaCatalog()
    for entry in catalog["replicas"]:
        (pfn,) = entry["pfns"]
        more = {key: entry[key] for key in ("checksum", "metadata")}
        theirs.add_replica(pfn["site"], entry["lfn"], pfn["pfn"], **more)
    theirs.write(str(folder / "theirs.yml"))
    assert yaml.safe_load((folder / "theirs.yml").read_text())["replicas"] == catalog["replicas"]
    ours = replicas_of(read_document(folder / "replicas.yml", "replica catalog"))
    assert ours.entries["a.fq"].places == (("local", str(folder / "data/a.fq")),)
    assert catalog["replicas"][0]["checksum"] == {"sha256": HI}


def test_one_file_by_its_url(folder: Path) -> None:
    uri = (folder / "data/deep/er/b 1.fq").as_uri()
    (entry,) = yaml.safe_load(adon("site", "replicas", uri, "--site", "mu").out)["replicas"]
    assert entry == {
        "lfn": "b 1.fq",
        "pfns": [{"site": "mu", "pfn": str(folder / "data/deep/er/b 1.fq")}],
        "metadata": {"size": "3"},
    }


def test_a_file_that_is_there_stays(folder: Path) -> None:
    (folder / "mine.yml").write_text("mine")
    command = ("site", "replicas", "data", "--output", "mine.yml")
    assert refusal(*command) == "mine.yml: found a file, expected a free name"
    assert (folder / "mine.yml").read_text() == "mine"


def test_what_cannot_be_read_is_one_line_and_the_rest_is_written(folder: Path) -> None:
    ran = adon("site", "replicas", "gone", "ftp://h/x", "http://[", "data", "--output", "r.yml")
    assert ran.code == 1
    gone, ftp, bracket = ran.err.splitlines()
    assert gone.endswith("/gone: No such file or directory, expected a file or a directory")
    assert ftp == "adon: ftp://h/x: found ftp, expected irods, https, http, file or a path"
    assert bracket.startswith("adon: http://[: cannot be reached: ")
    assert sizes(yaml.safe_load((folder / "r.yml").read_text())) == SIZES
    ran = adon("site", "replicas", "gone", "--output", "none.yml")
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == "adon: found no file, expected one at least"
    assert not (folder / "none.yml").exists()


@pytest.mark.parametrize("name", [b"\xe9t\xe9", b"a\nb"])
def test_a_file_whose_name_no_catalog_takes_is_left_out(folder: Path, name: bytes) -> None:
    (folder / "data" / os.fsdecode(name)).write_text("x")
    ran = adon("site", "replicas", "data", "--output", "r.yml")
    assert ran.code == 1
    assert "found the name" in ran.err and len(ran.err.splitlines()) == 1
    assert sizes(yaml.safe_load((folder / "r.yml").read_text())) == SIZES


def test_equal_files_are_replicas_and_others_are_refused(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more/a.fq").write_bytes(b"hi")
    catalog = yaml.safe_load(adon("site", "replicas", "data", "more", "--checksum").out)
    assert [pfn["pfn"] for pfn in catalog["replicas"][0]["pfns"]] == [
        str(folder / "data/a.fq"), str(folder / "more/a.fq"),
    ]  # fmt: skip
    (folder / "more/a.fq").write_bytes(b"ho")
    assert adon("site", "replicas", "data", "more").code == 0  # nobody asked for their checksums
    message = refusal("site", "replicas", "data", "more", "--checksum")
    assert message.startswith(f"a.fq: found 2 B, sha256 {HI} at {folder}/data/a.fq and 2 B, ")
    (folder / "more/a.fq").write_bytes(b"other")
    assert refusal("site", "replicas", "data", "more") == (
        f"a.fq: found 2 B, sha256 None at {folder}/data/a.fq and 5 B, sha256 None at "
        f"{folder}/more/a.fq, expected one file under one name"
    )


# ---------------------------------------------------------------------- whose site, which order


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://data.example/soy/a", "soy"),
        ("https://data.example/soykb/a", "all"),
        ("https://data.example/soy", "soy"),
        ("irods://ann@zone.example/z/a", "zone"),
        ("osdf:///ospool/a", "osg"),
        ("https://cache.example:8443/a", "near"),
        ("https://data.example.org/a", ""),
        ("/data/a", ""),
    ],
)
def test_the_longest_prefix_tells_the_site(url: str, site: str) -> None:
    prefixes = {"https://data.example/": "all", "https://data.example/soy": "soy"}
    prefixes |= {"irods://zone.example": "zone", "osdf:///ospool/": "osg", "cache.example": "near"}
    assert site_of_url(url, prefixes) == site


def test_a_place_that_nobody_knows_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"^http://h/a: its site is unknown, expected --site, or"):
        place_of(SourceFile("a", "http://h/a"), None, {"/": "local"})


@pytest.mark.parametrize("name", ["a\nb", "../a", "a/../../b", "/etc/a", "a//b", ""])
def test_a_name_that_leads_out_of_a_run_is_refused(name: str) -> None:
    problem = unnameable(SourceFile(name, "http://h/a"))
    assert f"found the name {name!r}, expected a name without line breaks" in problem


# ---------------------------------------------------------------------- URLs and WebDAV


def listing(*hrefs: str) -> str:
    """Folders end in ``/``."""
    items = "".join(
        f"<response><href>{href}</href><propstat><prop><resourcetype>"
        f"{'<collection/>' * href.endswith('/')}</resourcetype></prop></propstat></response>"
        for href in hrefs
    )
    return f'<multistatus xmlns="DAV:">{items}</multistatus>'


# What is elsewhere, itself again and again.
ODD = listing("/odd/", "/odd/d/", "/", "/other/x", "http://h.example/odd/a", "%2e%2e/up")
LISTINGS = {
    "/odd/": ODD,
    "/odd/d/": ODD,
    "/as-is/": listing("/as-is/", "/as-is/run #7.csv", "/as-is/100%", "/as-is/a%20b", "/as-is/ü"),
    "/encoded/": listing("/encoded/", "/encoded/a%20b", "/encoded/c#1", "/encoded/ü"),
    "/amp/": listing("/amp/", "/amp/oak&elm.csv", "/amp/a&amp;b", "/amp/&#97;"),
    "/twice/": listing("//twice/", "//twice//ash.csv"),
    "/late/": listing("/late/", "/late/ash.csv"),
    "/latin/": listing("/latin/", "/latin/%E9.csv", "/latin/ash.csv"),
    "/relative/": listing("./", "ash.csv", "./elm.csv", "relative/oak.csv"),
    "/changed/": listing("/", "/ash.csv", "/elm.csv"),
    "/levels/": listing("/levels/", "/levels/d/", "/levels/d/ash.csv"),
    "/levels/d/": listing("/levels/d/", "/levels/d/ash.csv"),
    # As nginx answers for what is not there.
    "/none/": """<D:multistatus xmlns:D="DAV:"><D:response><D:href>/none/</D:href><D:propstat>
        <D:prop></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>
        </D:multistatus>""",
    "/broken/": listing("/broken/", "/broken/a<b"),
    # As XRootD and SabreDAV write it: prefixes of their own, what is not there apart.
    "/parts/": """<D:multistatus xmlns:D="DAV:" xmlns:lp1="DAV:">
        <D:response><D:href>/parts</D:href><D:propstat><D:prop><lp1:resourcetype><D:collection/>
        </lp1:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat>
        <D:prop><D:getcontentlength/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status>
        </D:propstat></D:response>
        <D:response><D:href>/parts/ash.csv</D:href><D:propstat><D:prop><D:getcontentlength/>
        <D:resourcetype><D:collection/></D:resourcetype></D:prop>
        <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat><D:propstat><D:prop>
        <lp1:getcontentlength> 20 </lp1:getcontentlength></D:prop>
        <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
        <D:response><D:href>/parts/closed</D:href><D:status>HTTP/1.1 403 Forbidden</D:status>
        </D:response></D:multistatus>""",
}


class Answers(BaseHTTPRequestHandler):
    """A web server without WebDAV: what it says of a file stands in its path."""

    def do_HEAD(self) -> None:
        words = self.path.strip("/").split("/")
        if words[0] == "moved":
            self.send_response(302)
            self.send_header("Location", "/" + "/".join(words[1:]))
        elif words[0] == "gone":
            self.send_response(404)
        else:
            self.send_response(200)
            if words[0] == "sized":
                self.send_header("Content-Length", "2")
                digest = base64.b64encode(bytes.fromhex(HI)).decode()
                self.send_header("Digest", f"adler32=0000, SHA-256={digest}")
        self.end_headers()

    def do_PROPFIND(self) -> None:
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        length = int(self.headers.get("Content-Length") or 0)  # none: all properties are meant
        if length and b"getcontentlength" not in self.rfile.read(length):
            self.send_error(400)
            return
        listing = LISTINGS.get(self.path)
        if listing is None:
            self.send_error(501)
            return
        begin = "\n " if self.path == "/late/" else ""
        body = f'{begin}<?xml version="1.0"?>{listing}'.encode()
        self.send_response(207)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    for server in served(ThreadingHTTPServer(("127.0.0.1", 0), Answers)):
        yield f"http://127.0.0.1:{server.server_port}"


def test_a_url_is_asked_for_size_and_checksum(web: str) -> None:
    for way in ("sized", "moved/sized"):
        ran = adon("site", "replicas", f"{web}/{way}/a%20b.fq", "--site", "mu")
        assert yaml.safe_load(ran.out)["replicas"] == [
            {
                "lfn": "a b.fq",
                "pfns": [{"site": "mu", "pfn": f"{web}/{way}/a%20b.fq"}],
                "checksum": {"sha256": HI},
                "metadata": {"size": "2"},
            }
        ]


def test_a_url_without_size_is_written_without_one(web: str) -> None:
    ran = adon("site", "replicas", f"{web}/plain/a", "--site", "mu")
    assert (ran.code, "metadata" in ran.out) == (0, False)
    assert ran.err == (
        f"adon: {web}/plain/a: its server reports no size for 1 files; written without one\n"
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/gone/a", "its server answers 404 Not Found"),
        ("/gone/", "its server answers 501 Not Implemented"),
        ("/none/", "its server answers 404 Not Found"),
    ],
)
def test_a_url_that_is_refused(web: str, path: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        list(read_url(web + path, print))
    assert str(refused.value) == f"{web}{path}: {said}"


def test_an_odd_listing_leads_nowhere_else(web: str) -> None:
    said: list[str] = []
    assert list(read_url(f"{web}/odd/", said.append)) == [SourceFile("a", f"{web}/odd/a")]
    assert said == [f"{web}/odd/: its server reports no size for 1 files; written without one"]


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("/as-is/", {"run #7.csv": "run%20%237.csv", "100%": "100%25", "a%20b": "a%2520b",
                     "ü": "%C3%BC"}),
        ("/encoded/", {"a b": "a%20b", "c#1": "c%231", "ü": "%C3%BC"}),
        ("/amp/", {"oak&elm.csv": "oak&elm.csv", "a&b": "a&b", "a": "a"}),
        ("//twice/", {"ash.csv": "ash.csv"}),
        ("/late/", {"ash.csv": "ash.csv"}),
        ("/latin/", {"\udce9.csv": "%E9.csv", "ash.csv": "ash.csv"}),
        ("/relative/", {"ash.csv": "ash.csv", "elm.csv": "elm.csv", "oak.csv": "oak.csv"}),
        ("/changed/", {"ash.csv": "ash.csv", "elm.csv": "elm.csv"}),
        ("/levels/", {"d/ash.csv": "d/ash.csv"}),
        ("/moved/relative/", {"ash.csv": "ash.csv", "elm.csv": "elm.csv", "oak.csv": "oak.csv"}),
        ("/parts/", {"ash.csv": "ash.csv"}),
    ],
)  # fmt: skip
def test_listings_as_servers_write_them(web: str, folder: str, files: dict[str, str]) -> None:
    root = web + folder
    source_files = list(read_url(root, print))
    assert {f.lfn: f.pfn for f in source_files} == {lfn: root + pfn for lfn, pfn in files.items()}
    assert len(source_files) == len(files)
    assert {f.size_bytes for f in source_files} == {20 if folder == "/parts/" else None}


def test_a_listing_that_is_no_xml_is_said(web: str) -> None:
    with pytest.raises(InputError, match=r"/broken/: found a WebDAV listing that is not well-formed"
                       " XML: .*line 1, column"):  # fmt: skip
        list(read_url(f"{web}/broken/", print))


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(InputError) as refused:
        list(read_url("http://127.0.0.1:9/a", print))
    assert str(refused.value).startswith("http://127.0.0.1:9/a: cannot be reached: ")
    assert "Connection refused" in str(refused.value)


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def dav(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """``data`` by WebDAV: its URL, and the methods it was asked by."""
    methods: list[str] = []
    settings = {
        "provider_mapping": {"/": str(folder / "data")},
        "simple_dc": {"user_mapping": {"*": True}},
        "logging": {"enable": False},
        "verbose": 0,
    }
    app = WsgiDAVApp(settings)

    def counted(environ: Any, start: Any) -> Any:
        methods.append(environ["REQUEST_METHOD"])
        return app(environ, start)

    for server in served(make_server("127.0.0.1", 0, counted, handler_class=Quiet)):
        yield f"http://127.0.0.1:{server.server_port}", methods


def test_a_webdav_collection_is_listed_folder_by_folder(dav: tuple[str, list[str]]) -> None:
    url, methods = dav
    ran = adon("site", "replicas", f"{url}/", "--site", "mu")
    assert (ran.code, ran.err) == (0, "")
    catalog = yaml.safe_load(ran.out)
    assert sizes(catalog) == SIZES
    assert [e["pfns"][0]["pfn"].removeprefix(url) for e in catalog["replicas"]] == [
        "/a.fq", "/deep/er/b%201.fq", "/deep/%C3%BC%23%25.fq",
    ]  # fmt: skip
    assert methods == ["PROPFIND"] * 3


def test_a_webdav_collection_that_is_a_file_is_that_file(dav: tuple[str, list[str]]) -> None:
    url, _ = dav
    (file,) = read_url(f"{url}/deep/er/b%201.fq/", print)
    assert file == SourceFile("b 1.fq", f"{url}/deep/er/b%201.fq", 3)


@pytest.mark.parametrize(
    ("site", "order"),
    [
        ("local", ["local", "mu", "tacc"]),
        ("tacc", ["tacc", "local", "mu"]),
        ("mu", ["mu", "local", "tacc"]),
        (None, ["tacc", "mu", "local"]),
    ],
)
def test_what_arrives_soonest_is_first(
    dav: tuple[str, list[str]], web: str, folder: Path, site: str | None, order: list[str]
) -> None:
    write_world(folder)
    catalog = yaml.safe_load((folder / "sites.yml").read_text())
    for entry, url in zip(catalog["sites"], ("", dav[0], web), strict=True):
        if url:
            entry["directories"][0]["fileServers"].append({"operation": "get", "url": url})
    catalog["sites"][1]["profiles"]["pegasus"] |= {
        "adon.bandwidth.tacc": "10 Mb/s", "adon.bandwidth.local": "1 Gb/s",
    }  # fmt: skip
    (folder / "sites.yml").write_text(yaml.safe_dump(catalog))
    sources = (f"{web}/sized/a.fq", f"{dav[0]}/", "data")
    rank = () if site is None else ("--rank-for", site)
    ran = adon("site", "replicas", *sources, "--sites", "sites.yml", *rank)
    assert (ran.code, ran.err) == (0, "")
    assert [pfn["site"] for pfn in yaml.safe_load(ran.out)["replicas"][0]["pfns"]] == order
    assert refusal("site", "replicas", "data", "--sites", "sites.yml", "--rank-for", "m") == (
        "--rank-for 'm' is not in the site catalog, which lists local, mu, tacc, did you mean 'mu'?"
    )


def test_the_network_of_adon_yml_tells_sites_too(web: str, folder: Path) -> None:
    config = config_file(folder)
    named = yaml.safe_load(config.read_text())
    named["topology"]["nodes"][0] |= {"address": "10.9.9.9", "dtn": "127.0.0.1"}
    config.write_text(yaml.safe_dump(named))
    ran = adon("site", "replicas", f"{web}/sized/a.fq", "--config", config)
    assert yaml.safe_load(ran.out)["replicas"][0]["pfns"][0]["site"] == "mu"


# ---------------------------------------------------------------------- iRODS


@pytest.fixture
def zone(tmp_path: Path) -> Iterator[Zone]:
    resources = {"demoResc": "127.0.0.1", "farResc": "far.example"}
    with Zone(tmp_path / "vault", resources=resources) as server:
        for name, data in (("soy/a.fq", b"hi"), ("soy/deep/b 1.fq", b"two"), ("soy_1/c", b"no")):
            server.make_collection(f"{server.home()}/{name.rpartition('/')[0]}")
            server.put(f"{server.home()}/{name}", data)
        yield server


def listed(
    zone: Zone, path: str = "/soy", password: str = "secret", name: str = ""
) -> tuple[list[SourceFile], list[str]]:
    """What the real client finds, and what is said about it."""
    messages: list[str] = []
    session = iRODSSession(
        host="127.0.0.1", port=zone.port, user="rods", password=password, zone=zone.name
    )
    account = {"irods_host": "127.0.0.1", "irods_port": zone.port, "irods_user_name": "rods"}

    def describe(error: Exception) -> str:
        return sentence(error, parsed(url), account)

    url = f"irods://rods@127.0.0.1:{zone.port}{name or zone.home()}{path}"
    return list(read_zone(url, messages.append, session, describe)), messages


def test_an_irods_collection_is_listed_by_one_query(zone: Zone) -> None:
    zone.put(f"{zone.home()}/soy/a.fq", b"hi", resource="farResc")
    zone.put(f"{zone.home()}/soy/a.fq", b"stale", resource="farResc").status = "0"
    zone.calls.clear()
    files, said = listed(zone)
    assert zone.calls["query"] == 1
    base = f"irods://rods@127.0.0.1:{zone.port}{zone.home()}/soy"
    assert sorted((f.lfn, f.pfn, f.size_bytes, f.replica) for f in files) == [
        ("a.fq", f"{base}/a.fq", 2, f"{base}/a.fq"),
        ("a.fq", f"{base}/a.fq", 2, f"{base}/a.fq".replace("127.0.0.1", "far.example")),
        ("deep/b 1.fq", f"{base}/deep/b%201.fq", 3, f"{base}/deep/b%201.fq"),
    ]
    assert {f.sha256 for f in files if f.lfn == "a.fq"} == {HI}
    assert not said
    prefixes = {"127.0.0.1": "iplant", "far.example": "tacc"}
    entries = merged((file, place_of(file, None, prefixes)) for file in files)
    assert dict(entries["a.fq"].places) == {
        "iplant": f"{base}/a.fq", "tacc": f"{base}/a.fq".replace("127.0.0.1", "far.example"),
    }  # fmt: skip
    del prefixes["far.example"]  # then the zone is asked where it is
    entries = merged((file, place_of(file, None, prefixes)) for file in files)
    assert entries["a.fq"].places == (("iplant", f"{base}/a.fq"),)


def test_a_collection_that_is_an_object_is_that_object(zone: Zone) -> None:
    (file,), _ = listed(zone, "/soy/deep/b 1.fq")
    assert (file.lfn, file.size_bytes) == ("b 1.fq", 3)


def test_checksums_of_another_kind_are_left_out(zone: Zone) -> None:
    for path in (f"{zone.home()}/soy/a.fq", f"{zone.home()}/soy/deep/b 1.fq"):
        zone.objects[path][0].checksum = "49f68a5c8493ec2c0bf489821c21fc3b"
    files, (said,) = listed(zone)
    assert {f.sha256 for f in files} == {None}
    assert said.endswith("/soy: 2 checksums of kind md5 left out, a catalog has sha256 only")


def test_10_000_objects_come_page_by_page(zone: Zone) -> None:
    zone.make_collection(f"{zone.home()}/many")
    known = zone.put(f"{zone.home()}/many/0", b"x")
    for number in range(1, 10_000):
        path = f"{zone.home()}/many/{number}"
        zone.objects[path] = [known]
        zone._object_ids[path] = 10**6 + number
    zone.calls.clear()
    files, _ = listed(zone, "/many")
    assert len({f.lfn for f in files}) == 10_000
    assert zone.calls["query"] <= 10_000 / 256 + 2


def test_what_an_irods_zone_refuses_is_one_line(zone: Zone) -> None:
    def refused(**how: str) -> str:
        with pytest.raises(InputError) as error:
            listed(zone, **how)
        return str(error.value).partition(f"127.0.0.1:{zone.port}")[2]

    nothing = "found neither a collection nor a data object there"
    assert refused(path="/none") == f"{zone.home()}/none: {nothing}"
    assert refused(name="/otherZone/home") == f"/otherZone/home/soy: {nothing}"
    assert "the zone does not accept the password of rods" in refused(password="wrong")
    zone.faults.append(Fault("query", "drop", times=99))
    assert "cannot be reached, or broke off" in refused()


def test_a_host_that_only_the_account_knows(
    zone: Zone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "irods_environment.json"
    account = {"irods_host": "127.0.0.1", "irods_port": zone.port, "irods_user_name": "rods",
               "irods_zone_name": "tempZone", "irods_password": "secret"}  # fmt: skip
    environment.write_text(json.dumps(account))
    monkeypatch.setenv("IRODS_ENVIRONMENT_FILE", str(environment))
    ran = adon("site", "replicas", f"irods://{zone.home()}/soy", "--site", "iplant")
    assert (ran.code, ran.err) == (0, "")
    (first, *_) = yaml.safe_load(ran.out)["replicas"]
    # pegasus-transfer takes a host for a resource, and no other form.
    assert first["pfns"][0]["pfn"] == f"irods://{zone.home()}/soy/{first['lfn']}"


def test_the_command_line_knows_who_one_is(
    zone: Zone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "auth").write_text(encode("secret"))
    monkeypatch.setenv("IRODS_AUTHENTICATION_FILE", str(tmp_path / "auth"))
    monkeypatch.setenv("HOME", str(tmp_path))
    url = f"irods://rods@127.0.0.1:{zone.port}{zone.home()}/soy"
    ran = adon("site", "replicas", url, "--site", "iplant")
    assert (ran.code, ran.err) == (0, "")
    assert sizes(yaml.safe_load(ran.out)) == {"a.fq": "2", "deep/b 1.fq": "3"}
    ran = adon("site", "replicas", url.replace("rods@", ""), "--site", "iplant")
    assert ran.code == 2
    assert "found no irods_user_name for" in ran.err.splitlines()[0]


@given(st.binary(min_size=32, max_size=32))
def test_checksums_are_read_as_irods_and_http_write_them(digest: bytes) -> None:
    text = base64.b64encode(digest).decode()
    assert sha256_of(f"sha2:{text}") == sha256_of(f" SHA-256={text}") == digest.hex()
    for other in (digest.hex(), f"sha512:{text}", f"sha2:{text[:-8]}", f"md5={text}", text, ""):
        assert sha256_of(other) is None


def test_pegasus_transfer_keeps_the_order_of_equal_replicas() -> None:
    """Pegasus's default selector gives all sites but the job's own one priority."""
    transfer = Transfer()
    for site in ("soon", "late", "last"):
        transfer.add_src(site, f"https://{site}.example/a", priority=10)
    transfer.add_dst("mu", "file:///a", priority=10)
    assert transfer.get_src_site_label() == "soon"
    transfer.move_to_next_sub_transfer()
    assert transfer.get_src_site_label() == "late"
