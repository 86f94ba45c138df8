"""The plug-in of monitord records what the files say, however monitord ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from monitor_files import START, Submitted, append, exiting, starting, table

from monitors.archive.archive import Archive
from monitors.workflows import follower
from monitors.workflows.follower import Follower
from network_provisioner.base.errors import InputError
from pegasus_hooks.monitord import PREFIX, AdonPlugin
from tests.waiting import until

END = table(START + 9, done=3) + exiting(START + 10, 0)


class Properties:
    """Those of Pegasus, as far as plug-ins read them."""

    def __init__(self, **settings: object) -> None:
        self._settings = {f"{PREFIX}{name}": str(value) for name, value in settings.items()}

    def propertyset(self, prefix: str, remove: bool) -> dict[str, str]:
        assert remove
        return {name.removeprefix(prefix): value for name, value in self._settings.items()}


class SilentWatch:
    """The kernel on a network file system: it reports nothing that other machines write."""

    def __init__(self, _files: Mapping[Path, Iterable[str]]) -> None: ...

    def add(self, _folder: Path, _names: Iterable[str]) -> None: ...

    def drop(self, _folder: Path) -> None: ...

    def wait(self, _timeout_s: float) -> set[Path]:
        return set()

    def close(self) -> None: ...


@pytest.fixture
def started(
    planned: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterable[AdonPlugin]:
    """The plug-in that monitord found, in a workflow that runs."""
    (entry,) = entry_points(group="pegasus.monitord.plugins", name="adon")
    planned.out.write_text(starting() + table(START + 1, unready=3))
    monkeypatch.chdir(planned.path)
    plugin = entry.load()()
    plugin.start(Properties(archive=tmp_path / "by-plugin.sqlite", enabled=True), restart=False)
    yield plugin
    plugin.stop()


def ids(path: Path) -> list[str]:
    with Archive(path) as archive:
        return sorted(m.id for metric in ("workflow", "status") for m in archive.query(metric))


def test_what_is_written_until_monitord_stops_is_recorded_once(
    planned: Submitted, started: AdonPlugin, archive: Archive, tmp_path: Path
) -> None:
    by_plugin = tmp_path / "by-plugin.sqlite"
    until(lambda: len(ids(by_plugin)) == 2, "the workflow and its first status")
    append(planned.out, END)
    started.stop()
    Follower(planned.path, archive).run()
    assert ids(by_plugin) == ids(archive.location)
    again = AdonPlugin()  # monitord starts again and delivers all from the beginning
    again.start(Properties(archive=by_plugin), restart=True)
    again.stop()
    assert ids(by_plugin) == ids(archive.location)


def test_an_event_has_its_workflow_read(
    planned: Submitted, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_ANYWAY_S", 1e9)
    monkeypatch.setitem(Follower.__init__.__kwdefaults__, "watch", SilentWatch)
    planned.out.write_text(starting() + table(START + 1, unready=3))
    monkeypatch.chdir(planned.path)
    plugin = AdonPlugin()
    plugin.start(Properties(archive=archive.location))
    until(lambda: len(archive.query("status")) == 1)
    append(planned.out, table(START + 5, queued=1, unready=2))
    plugin.handle_event("stampede.job_inst.submit.end", {"xwf__id": "another's"})
    plugin.handle_event("stampede.job_inst.submit.end", {"xwf__id": planned.uuid})
    until(lambda: len(archive.query("status")) == 2)
    plugin.stop()


@pytest.mark.parametrize("settings", [{}, {"archive": "a.sqlite", "broker": "http://b"}])
def test_without_one_place_for_measurements_it_does_not_start(settings: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"found (no|a).*expected"):
        AdonPlugin().start(Properties(**settings))
