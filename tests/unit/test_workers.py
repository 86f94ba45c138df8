"""Work of requests in threads: one change at a time, in order, and none that came too late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from network_provisioner.api import workers
from network_provisioner.api.workers import Workers
from network_provisioner.base.errors import BrokerError


@pytest.fixture
def pools() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def test_changes_are_made_one_by_one_in_the_order_they_came(pools: Workers) -> None:
    done: list[int] = []
    at_once: list[int] = []
    inside = threading.Semaphore(1)

    def work(number: int) -> int:
        at_once.append(inside.acquire(blocking=False))
        done.append(number)
        inside.release()
        return number

    async def main() -> list[int]:
        return await asyncio.gather(*(pools.change(work, n) for n in range(100)))

    assert asyncio.run(main()) == list(range(100)) == done
    assert all(at_once)


def test_who_only_reads_does_not_wait_for_changes(pools: Workers) -> None:
    release = threading.Event()

    async def main() -> str:
        change = asyncio.ensure_future(pools.change(release.wait, 60))
        await asyncio.sleep(0)  # it goes before
        answer = await pools.read(lambda: "read")
        release.set()
        assert await change
        return answer

    assert asyncio.run(main()) == "read"


def test_a_turn_that_does_not_come_is_given_up_and_never_taken(
    pools: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release, late = threading.Event(), threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return release.wait(60)

    async def main() -> None:
        slow = asyncio.ensure_future(pools.change(wait))
        assert await asyncio.to_thread(begun.wait, 60)
        monkeypatch.setattr(workers, "WAIT_S", 0.05)  # only now: the first may be long in beginning
        with pytest.raises(BrokerError) as caught:
            await pools.change(late.set)
        assert caught.value.code == "busy"
        release.set()
        assert await slow  # what had begun is waited for, however long it takes

    asyncio.run(main())
    pools.close()
    assert not late.is_set()


def test_what_work_raises_is_raised_also_a_timeout(pools: Workers) -> None:
    def fails(error: Exception) -> None:
        raise error

    for error in (TimeoutError("its own"), ValueError("x")):
        with pytest.raises(type(error), match=str(error)):
            asyncio.run(pools.change(fails, error))
