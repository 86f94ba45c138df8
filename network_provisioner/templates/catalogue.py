"""What stands in the catalogue of templates: read from the store, kept in memory, asked often.

What is configured goes to the store too, as a version like others, where it differs from the last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from network_provisioner.stores.store import Document, StoreError
from network_provisioner.templates import entry as entrydocs
from network_provisioner.templates import learn as learning
from network_provisioner.templates.data import BUILT_IN, template_from_dict
from network_provisioner.templates.entry import Documents, Entry, entry_of, figures
from network_provisioner.templates.match import Match, Wanted, match
from network_provisioner.templates.sitepolicy import TemplatePolicy
from network_provisioner.templates.template import Template

log = logging.getLogger(__name__)

KEEP = 200  # versions of one template
_LOOK_AGAIN_S = 1.0  # how old may be what is known of another broker's changes
_MOST_OLD = 1000  # old versions, and answers, kept in memory


class TemplateShelf:
    """Templates by name, to look at. Thread-safe; several may share one store.

    Questions are answered from memory while the store is away; a look into history may raise
    StoreError.
    """

    def __init__(
        self,
        configured: Mapping[str, Template],
        store: Documents,
        policy: TemplatePolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``configured``: the built-in templates and those of adon.yml."""
        self.policy = policy or TemplatePolicy()
        self._configured = dict(configured)
        self._store = store
        self._clock = clock
        self._lock = threading.RLock()
        self._entries: Mapping[str, Entry] = {}
        self._old: dict[tuple[str, int], Entry | None] = {}  # versions that were asked for
        self._matches: dict[tuple[str, Wanted], Match] = {}
        self._stamps = (-1, -1)
        self._looked_at = float("-inf")
        for name in self._configured:
            self._keep_configured(name)
        self.refresh()

    def get(self, name: str, version: int | None = None) -> Template | None:
        """A template as it is now, or one of its versions; None where there is none."""
        found = self.entry(name, version)
        return found.template if found else None

    def version(self, name: str, number: int) -> Template | None:
        """One version of a template; None where it is not kept, or the store cannot say."""
        try:
            return self.get(name, number)
        except StoreError as error:
            log.warning("template %s %d cannot be had: %s", name, number, error)
            return None

    def entry(self, name: str, version: int | None = None) -> Entry | None:
        """As :meth:`get`, with where it comes from."""
        kept = self._old  # before the entries, as in explain()
        found = self._now().get(name)
        if version is None or (found is not None and found.template.version == version):
            return found
        if (name, version) in kept:
            return kept[name, version]
        document = self._store.document(entrydocs.KIND, name, version)
        learned = found.learned if found else {}
        entry = entry_of(document, self.policy, learned) if document else None
        if len(kept) < _MOST_OLD:
            kept[name, version] = entry
        return entry

    def names(self) -> list[str]:
        """The names of all templates, in order."""
        return sorted(self._now())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._now()

    def history(self, name: str) -> list[tuple[Document, Entry | None]]:
        """Every version that is kept, oldest first; no entry for one that deleted the template."""
        return [
            (document, None if document.deleted else entry_of(document, self.policy, {}))
            for document in self._store.history(entrydocs.KIND, name)
        ]

    def match(self, application: str, wanted: Wanted | None = None) -> Template | None:
        """The template for an application and what it asks for, or None."""
        return self.explain(application, wanted).template

    def explain(self, application: str, wanted: Wanted | None = None) -> Match:
        """As :meth:`match`, with the reason (:func:`~network_provisioner.templates.match.match`).

        Templates of the site that are for the application go before those of self-service.
        """
        # All transfers of a workflow ask the same. Taken before the entries: where refresh() comes
        # in between, the answer goes into what is thrown away, never an old one into the new.
        kept, asked = self._matches, (application, wanted or Wanted())
        known = self._now()
        found = kept.get(asked) if kept is self._matches else None
        if found is None:
            found = match([e.template for e in known.values() if e.trusted], *asked)
            if found.how not in ("name", "pattern"):
                found = match([e.template for e in known.values()], *asked)
            if len(kept) < _MOST_OLD:
                kept[asked] = found
        return found

    def refresh(self) -> None:
        """Take in what others changed, now."""
        with self._lock:
            self._looked_at = self._clock()
            stamps = (
                self._store.documents_stamp(entrydocs.KIND),
                self._store.documents_stamp(entrydocs.LEARNED),
            )
            if stamps == self._stamps:
                return
            lessons = [d.name for d in self._store.documents(entrydocs.LEARNED)]
            learned = {n: learning.best(self._store.history(entrydocs.LEARNED, n)) for n in lessons}
            entries = {}
            for document in self._store.documents(entrydocs.KIND):
                entry = entry_of(document, self.policy, learned.get(document.name, {}))
                # What another broker has in its adon.yml is not for this one.
                if entry and (document.name in self._configured or not entry.configured):
                    entries[document.name] = entry
            self._entries, self._old, self._matches = entries, {}, {}
            self._stamps = stamps

    def _now(self) -> Mapping[str, Entry]:
        if self._clock() - self._looked_at >= _LOOK_AGAIN_S:
            try:
                self.refresh()
            except StoreError as error:  # what is known serves until the store is there again
                log.warning("the templates cannot be read again: %s", error)
        return self._entries

    def _keep_configured(self, name: str) -> None:
        """Put a configured template into the store, unless it or a saved one stands there."""
        template = self._configured[name]
        last = self._store.document(entrydocs.KIND, name)
        entry = entry_of(last, self.policy, {}) if last else None
        if entry and (not entry.configured or figures(entry.template) == figures(template)):
            return
        built_in = name in BUILT_IN and template == template_from_dict(name, BUILT_IN[name])
        origin = entrydocs.ORIGIN_BUILT_IN if built_in else entrydocs.ADON_YML
        self._store.put_document(entrydocs.KIND, name, entrydocs.body_of(template, origin), KEEP)
