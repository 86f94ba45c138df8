"""Who listens to a workflow: what reserves for it in advance, where its configuration says so."""

from __future__ import annotations

import logging
import site
from importlib import import_module

from monitors.watcher.events import Watched, WorkflowListener

log = logging.getLogger(__name__)

_AHEAD = "pegasus_hooks.advance.start"  # its ``listener_of`` is a ListenerOf


def listener_of(watched: Watched) -> WorkflowListener | None:
    """The listener of one workflow, None where there is none or it cannot be had."""
    if not watched.config.ahead:
        return None
    try:
        # The watcher starts without the packages of the site; predictions read YAML.
        site.main()
        made: WorkflowListener | None = import_module(_AHEAD).listener_of(watched)
    except Exception:  # what is held is given back all the same
        log.exception("%s: nothing is reserved in advance", watched.workflow)
        return None
    return made
