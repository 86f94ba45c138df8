"""Answers are compressed, and not repeated to those who have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_rig import application
from broker_rig import Rig
from fastapi.testclient import TestClient


@pytest.fixture
def web(tmp_path: Path) -> TestClient:
    rig = Rig(tmp_path / "s")
    for number in range(50):
        rig.ask(f"t{number}", "mu", "tacc", min_bps=1e6)
    return TestClient(application(rig))


def test_an_answer_is_sent_once(web: TestClient) -> None:
    first = web.get("/v1/transits")
    tag = {"If-None-Match": first.headers["etag"]}
    again = web.get("/v1/transits", headers=tag)
    assert (again.status_code, again.content, again.headers["etag"]) == (
        304,
        b"",
        tag["If-None-Match"],
    )
    web.post("/v1/transits/t7/release", json={})
    changed = web.get("/v1/transits", headers=tag)
    assert changed.status_code == 200 and changed.headers["etag"] != tag["If-None-Match"]
    assert web.get("/v1/transits/nobody", headers=tag).status_code == 404


def test_long_answers_are_compressed_for_who_can_read_that(web: TestClient) -> None:
    plain = web.get("/v1/transits", headers={"Accept-Encoding": "identity"})
    packed = web.get("/v1/transits", headers={"Accept-Encoding": "gzip"})
    assert packed.json() == plain.json() and "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 5
