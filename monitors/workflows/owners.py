"""Whose a workflow is, as the archive has it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from monitors.archive.archive import Archive

_MOST = 50_000  # workflows that are remembered
_AGAIN_S = 1.0  # before what was not known is looked up again


class Owners:
    """Called with the UUID of a workflow it gives its user, None while nothing says who that is.

    A workflow never changes its user, so what is known is remembered. Threads may share it. Raises
    the archive's errors.
    """

    def __init__(self, archive: Archive, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that never go back."""
        self._archive, self._clock = archive, clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, str] = OrderedDict()
        self._asked: OrderedDict[str, float] = OrderedDict()

    def __call__(self, workflow: str) -> str | None:
        """Its user."""
        with self._lock:
            if workflow in self._known:
                self._known.move_to_end(workflow)
                return self._known[workflow]
            if self._clock() - self._asked.get(workflow, -_AGAIN_S) < _AGAIN_S:
                return None
        facts = self._archive.query("workflow", workflow)
        users = (m.details.get("user") for m in facts if m.workflow == workflow)
        user = next((str(user) for user in users if user), None)
        with self._lock:
            kept: OrderedDict[str, str] | OrderedDict[str, float]
            if user is None:
                self._asked[workflow] = self._clock()
                kept = self._asked
            else:
                self._known[workflow] = user
                kept = self._known
            while len(kept) > _MOST:
                kept.popitem(last=False)
        return user
