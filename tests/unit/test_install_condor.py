"""``adon install condor``: what is written, what is refused, and that nothing stays of it."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from adon.cli import install_ask, install_execute, install_expander
from adon.cli.main import main
from adon.config.adon_yml import parse_config
from condor_plugins.jobs.jobad import EVENT_ATTRIBUTES
from condor_plugins.transfers import setup
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig

BROKER = "http://127.0.0.1:9"
NETWORK = "topology: {nodes: [], links: []}\n"


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HTCondor of this machine's is asked, and programs have time on a busy one."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(install_ask, "_LIMIT_S", 300.0)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d/50-own").write_text("DAEMON_LIST = MASTER, SCHEDD\n")
    return tmp_path


def install(etc: Path, *more: str, site: str | None = "local") -> int:
    where = ["--config-dir", str(etc / "config.d"), "--broker", BROKER]
    named = ["--site", site] if site else []
    return main(["install", "condor", *where, *named, "--yes", *more])


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_two_files_come_and_go(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(etc)
    assert install(etc, "--dry-run") == 0
    assert files(etc) == before
    assert install(etc, "--project", "soy", "--token-file", "~/t") == 0
    assert sorted({*files(etc)} - {*before}) == [
        "adon-transfers.json",
        "config.d/99-adon-transfers",
    ]
    hooks = json.loads((etc / "adon-transfers.json").read_text())
    assert hooks == {"broker": BROKER, "site": "local", "project": "soy", "token_file": "~/t"}
    assert install(etc, "--project", "soy", "--token-file", "~/t") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert install(etc, site="mu") == 0  # other settings
    assert json.loads((etc / "adon-transfers.json").read_text())["site"] == "mu"
    assert install(etc, "--undo", site=None) == 0
    assert files(etc) == before
    assert install(etc, "--undo", site=None) == 0
    assert "nothing to do: no ADON" in capsys.readouterr().out


def test_what_the_network_says_of_urls_is_what_hooks_go_by(etc: Path) -> None:
    nodes = [
        {"name": "tacc", "kind": "site", "dtn": "dtn.tacc.example.org", "address": "10.0.0.1",
         "urls": ["https://data.example.org/", "osdf:///ospool/"],
         "hosts": [{"address": "10.0.0.2", "name": "web.tacc.example.org"}]},
        {"name": "mu", "kind": "site"},
    ]  # fmt: skip
    config = etc / "adon.yml"
    link = {"a": "tacc", "b": "mu", "capacity": "1 Gb/s"}
    config.write_text(json.dumps({"topology": {"nodes": nodes, "links": [link]}}))
    director = "https://director.example.org"
    assert install(etc, "--config", str(config), "--redirector", director) == 0
    hooks = hookconfig.load(etc / "adon-transfers.json")
    assert hooks.redirector == director
    assert hooks.sources == {
        "dtn.tacc.example.org": "tacc", "10.0.0.1": "tacc",
        "web.tacc.example.org": "tacc", "10.0.0.2": "tacc",
        "https://data.example.org/": "tacc", "osdf:///ospool/": "tacc",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sources": ["x"]}, "sources: found ['x'], expected sites by prefixes of URLs"),
        ({"sources": {"x": 1}}, "sources: found {'x': 1}, expected sites by prefixes of URLs"),
        ({"redirector": "osdf://x"}, "redirector: found 'osdf://x', expected an http or https URL"),
    ],
)
def test_settings_of_urls_that_are_none_are_refused(
    tmp_path: Path, wrong: dict[str, object], said: str
) -> None:
    file = tmp_path / "hooks.json"
    file.write_text(json.dumps({"broker": BROKER, **wrong}))
    with pytest.raises(InputError, match=re.escape(said)):
        hookconfig.load(file)


def test_an_execute_machine_tells_its_metrics_and_stops_it(
    etc: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(etc)
    (etc / "config.d/99-adon-transfers").write_bytes(b"")  # an access point on the same machine
    assert install(etc, "--execute", "--dry-run") == 0
    assert {*files(etc)} - {*before} == {"config.d/99-adon-transfers"}
    capsys.readouterr()
    assert install(etc, "--execute", "--interface", "lo", "--token-file", "/t") == 0
    said = capsys.readouterr().out
    assert "verified: the host reports " in said
    assert "verified: the broker reports no bandwidth now: " in said
    hooks = json.loads((etc / "adon-startd.json").read_text())
    assert hooks == {"broker": BROKER, "site": "local", "token_file": "/t"}
    text = (etc / "config.d/99-adon-startd").read_text()
    assert 'AdonSite = "local"\nSTARTD_ATTRS = $(STARTD_ATTRS) AdonSite\n' in text
    values = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    host = shlex.split(values["STARTD_CRON_ADON_HOST_ARGS"].strip('"'))
    assert host[-3:] == ["lo", "$(LOG)/adon-metrics.json", "$(EXECUTE)"]
    paths = shlex.split(values["STARTD_CRON_ADON_PATHS_ARGS"].strip('"'))
    assert paths[1:6] == [
        "-I",
        "-m",
        "condor_plugins.startd.paths",
        "--config",
        f"{etc}/adon-startd.json",
    ]
    assert install(etc, "--execute", "--undo", site=None) == 0
    (etc / "config.d/99-adon-transfers").unlink()
    assert files(etc) == before


def test_without_a_broker_no_bandwidth_is_told(etc: Path) -> None:
    assert install(etc, "--execute") == 0
    words = ["--config-dir", str(etc / "config.d"), "--site", "mu", "--yes"]
    assert main(["install", "condor", "--execute", *words]) == 0
    assert not (etc / "adon-startd.json").exists()
    text = (etc / "config.d/99-adon-startd").read_text()
    assert "ADON_HOST" in text
    assert "ADON_PATHS" not in text


def test_an_execute_machine_moves_files_of_irods_unless_another_does(
    etc: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(etc)
    assert install(etc, "--execute", "--irods") == 0
    plugin = etc / "adon-irods-plugin"
    assert f"verified: {plugin} serves irods://" in capsys.readouterr().out
    text = (etc / "config.d/99-adon-startd").read_text()
    assert f"FILETRANSFER_PLUGINS = $(FILETRANSFER_PLUGINS), {plugin}\n" in text
    assert install(etc, "--execute") == 0
    assert not plugin.exists()
    assert "FILETRANSFER" not in (etc / "config.d/99-adon-startd").read_text()
    assert install(etc, "--execute", "--irods") == 0
    assert install(etc, "--execute", "--undo", site=None) == 0
    assert files(etc) == before

    tools = etc / "bin"
    tools.mkdir()
    scripts = {
        "condor_config_val": f"echo /nowhere/curl, {tools}/other",
        "other": "echo 'SupportedMethods = \"http,irods\"'",
    }
    for name, script in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    capsys.readouterr()
    assert install(etc, "--execute", "--irods") == 2
    assert f"{tools}/other moves files of irods:// already" in capsys.readouterr().err
    monkeypatch.setattr(install_execute, "find_spec", lambda _: None)
    assert install(etc, "--execute", "--irods") == 2
    assert "found no python-irodsclient" in capsys.readouterr().err
    plugin.write_text("#!/bin/sh\n")
    assert install(etc, "--execute", "--irods") == 2
    assert "not ours" in capsys.readouterr().err


def test_condor_master_runs_the_expander_and_stops_it(
    etc: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(etc)
    tool = etc.parent / "bin/condor_config_val"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho MASTER, SCHEDD\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    config = etc / "adon.yml"
    config.write_text(f"{NETWORK}expansion: {{flavours: {{w: {{cores: 1}}}}}}\n")
    words = ["--config-dir", str(etc / "config.d"), "--yes", "--expander"]
    install = ["install", "condor", *words, "--config", str(config)]
    assert main([*install, "--dry-run"]) == 0
    assert not (etc / "config.d/99-adon-expander").exists()
    assert main(install) == 0
    output = capsys.readouterr().out
    assert f"by {config} (driver startd)" in output
    assert "DAEMON_LIST is set again elsewhere: MASTER, SCHEDD, expected ADON_EXPANDER" in output
    text = (etc / "config.d/99-adon-expander").read_text()
    values = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    assert values["DAEMON_LIST"] == "$(DAEMON_LIST) ADON_EXPANDER"
    args = values["ADON_EXPANDER_ARGS"]
    assert args.startswith('"') and args.endswith('"')
    shell, script, log, _, *run = shlex.split(args[1:-1].replace('""', '"'))
    assert (shell, script, log) == ("-c", 'exec "$@" 2>>"$0"', "$(LOG)/AdonExpanderLog")
    assert run == [
        *("-I", "-m", "adon", "pool", "run", "--config", str(config)),
        *("--log-file", "$(LOG)/AdonExpanderLog"),
    ]
    assert main(install) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main([*install, "--undo"]) == 0
    config.unlink()
    assert files(etc) == before


@pytest.mark.parametrize("script", ["exit 1", "printf 'ADON_EXPANDER \\377'"])
def test_an_expander_is_installed_whatever_htcondor_answers(
    etc: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    tool = etc / "bin/condor_config_val"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    config = etc / "adon.yml"
    config.write_text(f"{NETWORK}expansion: {{flavours: {{w: {{cores: 1}}}}}}\n")
    words = ["--config-dir", str(etc / "config.d"), "--yes", "--config", str(config)]
    assert main(["install", "condor", "--expander", *words]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and "DAEMON_LIST is set again" not in shown.out


def test_the_user_of_htcondor_need_not_be_in_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directory servers list nobody, and know everybody by name."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwall", list)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_name=name))
    assert install_ask.daemon_user() == "condor"


def test_an_expander_runs_as_whose_the_archive_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.sqlite"
    where = {"topology": {"nodes": [], "links": []}, "broker": {"archive": str(file)}}
    config = parse_config(where, str(tmp_path / "adon.yml"))
    assert install_expander.user_of(config, "condor") == "condor"
    file.touch()
    for owner, user in (("adon", "adon"), ("root", "")):
        monkeypatch.setattr(Path, "owner", lambda _, name=owner: name)
        assert install_expander.user_of(config, "condor") == user
    assert install_expander.user_of(config, "") == ""  # whoever starts condor_master
    text = install_expander.text("/p", Path("/c"), "adon")
    assert text.endswith("\nADON_EXPANDER_USERID = adon\n")


def test_an_expander_needs_an_adon_yml_that_says_how_to_expand(
    etc: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = etc / "adon.yml"

    def refused(*more: str) -> str:
        words = ["--config-dir", str(etc / "config.d"), "--yes", "--expander", *more]
        assert main(["install", "condor", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "found no --config" in refused()
    assert "adon.yml" in refused("--config", str(config))
    config.write_text(f"{NETWORK}expansion: {{driver: rooster}}\n")
    assert "expansion.driver" in refused("--config", str(config))
    config.write_text(f"{NETWORK}expansion:\n")
    assert "found no section 'expansion'" in refused("--config", str(config))
    (etc / "config.d/99-adon-expander").write_text("A = 1\n")
    assert "not ours" in refused("--config", str(config))
    assert "not ours" in refused("--undo")


def test_what_cannot_be_is_said_in_one_line(
    etc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*more: str, site: str | None = "local") -> str:
        before = files(etc)
        assert install(etc, *more, site=site) == 2
        assert files(etc) == before
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "found no --site" in refused(site=None)
    assert "found no folder" in refused("--config-dir", str(tmp_path / "gone"))
    (etc / "adon-transfers.json").write_text("{}")
    assert "not ours" in refused()
    (etc / "adon-transfers.json").unlink()
    (etc / "config.d/99-adon-transfers").write_text("A = 1\n")
    assert "not ours" in refused()
    assert "not ours" in refused("--undo")
    (etc / "config.d/99-adon-transfers").unlink()
    (etc / "config.d/60-site").write_text("A = 1\nshadow_job_hook_keyword = LAB\n")
    assert "60-site:2: found shadow_job_hook_keyword = LAB" in refused()
    assert "found no --site" in refused("--execute", site=None)
    assert "without quotes" in refused("--execute", site='a"b')
    (etc / "config.d/99-adon-startd").write_text("A = 1\n")
    assert "not ours" in refused("--execute")
    assert "not ours" in refused("--execute", "--undo")


def test_the_settings_name_both_programs_and_what_they_read() -> None:
    text = setup.text(
        setup.TransferSettings("/an env/bin/python", Path("/etc/c/h.json"), "condor", "/t")
    )
    values = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    hook = values["ADON_HOOK_SHADOW_PREPARE_JOB_ARGS"]
    words = shlex.split(hook)
    assert words[:3] == ["-c", '"$@"; exit 0', "adon"]
    assert words[3] == "/an env/bin/python"
    assert words[-2:] == ["--config", "/etc/c/h.json"]
    assert Path(words[6]).is_file()
    assert "'--token-file' '/t'" in values["ADON_TRANSFERS_ARGS"]
    assert values["ADON_TRANSFERS_USERID"] == "condor"
    noted = set(values["EVENT_LOG_JOB_AD_INFORMATION_ATTRS"].split())
    assert noted >= set(EVENT_ATTRIBUTES)
    assert setup.hooks_of(text.encode()) == Path("/etc/c/h.json")
    assert setup.hooks_of(b"A = 1\n") is None


@pytest.mark.parametrize("bad", ["/a$(B)/python", '/a"/python', "/a\n/python"])
def test_paths_that_htcondor_would_change_are_refused(bad: str) -> None:
    with pytest.raises(InputError, match="expected none of"):
        setup.text(setup.TransferSettings(bad, Path("/h.json")))


def test_a_quote_in_a_path_is_doubled() -> None:
    text = setup.text(setup.TransferSettings("/it's/python", Path("/h.json")))
    assert "'/it''s/python'" in text
