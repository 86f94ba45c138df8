"""Lets pegasus-transfer begin at once: Python imports this first where PYTHONPATH names its folder.

Thread n of pegasus-transfer sleeps 2·n seconds before its first transfer, so that many do not come
to a server together; a single one sleeps 2 s. Here they are ``_APART_S`` apart. Nothing else
changes, in no other program. Another ``sitecustomize`` on the path is imported, too.
"""

import sys
import threading

_APART_S = 0.1
_start = threading.Thread.start


def _start_soon(self: threading.Thread) -> None:
    if type(self).__module__ == "Pegasus.transfer" and hasattr(self, "thread_id"):
        self.thread_id = (self.thread_id - 1) * _APART_S / 2
    _start(self)


threading.Thread.start = _start_soon  # type: ignore[method-assign]
_ours = sys.modules.pop(__name__)
sys.path.remove(__file__.rpartition("/")[0])
try:
    __import__(__name__)
except ImportError:
    sys.modules[__name__] = _ours
