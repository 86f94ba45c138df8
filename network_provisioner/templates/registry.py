"""The catalogue of templates (thesis, §3.1): configured, saved, learned from; every version kept.

    built in  <  adon.yml  <  saved in the store           the right one stands where several are

What is configured goes to the store too, as a version like others, where it differs from the last;
so a version's number names the same figures for ever, and a transit that was decided with one finds
it again after any restart. What transfers taught (their best goodput, and with which tuning) is
kept beside the versions, for it says nothing about what the application needs.

What is saved in self-service stays within the site's :mod:`~.sitepolicy`,
and leaves alone what others saved or the site configured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import Transit
from network_provisioner.templates import entry as entrydocs
from network_provisioner.templates import learn as learning
from network_provisioner.templates.catalogue import KEEP, TemplateShelf
from network_provisioner.templates.data import template_from_dict, template_to_dict
from network_provisioner.templates.entry import Entry, Source, check_owner, figures, unknown
from network_provisioner.templates.sitepolicy import capped, check
from network_provisioner.templates.template import Template, Tuning

MOST_SAVED = 1000
_KEEP_LESSONS = 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class TemplateRegistry(TemplateShelf):
    """The catalogue, to look at and to change.

    Every change may raise StoreError. ``by`` says whose doing it is, and ``trusted`` that it is not
    self-service: then neither policy nor ownership bind it.
    """

    def save(
        self,
        name: str,
        body: object,
        by: str = "",
        trusted: bool = True,
        source: Source | None = None,
    ) -> tuple[Entry, list[str]]:
        """Save a new version, and say what the policy lowered. Saving the figures that stand there
        already makes no new one.

        Raises InputError for a template that is none or needs more than the site allows,
        BrokerError ``forbidden`` for one that is not the caller's.
        """
        if not _NAME.match(name):
            raise InputError(
                f"template name {name[:80]!r}, expected letters, digits and . _ - (at most 64)"
            )
        asked = template_from_dict(name, body)
        words: list[str] = []
        with self._lock:
            self.refresh()
            check_owner(name, self._entries.get(name), by, trusted)
            if not trusted:
                check(asked, self.policy)
                asked, words = capped(asked, self.policy)
            now = self._entries.get(name)
            if now is None and len(self._entries) >= MOST_SAVED:
                raise BrokerError(f"{MOST_SAVED} templates are saved, expected fewer", "conflict")
            if now is None or now.by != by or figures(now.template) != figures(asked):
                self._put(name, entrydocs.body_of(asked, entrydocs.SAVED, by, trusted, source))
            return self._entries[name], words

    def save_from(
        self, name: str, transit: Transit, by: str = "", trusted: bool = True
    ) -> tuple[Entry, list[str]]:
        """Save what worked for a transfer: its rates, the tuning of its template, its goodput as
        the peak. Raises as :meth:`save`, and BrokerError ``conflict`` for one that did not succeed.
        """
        problem = learning.failure(transit)
        if problem:
            raise BrokerError(
                f"transit {transit.id!r} {problem}, expected one that had a path, moved its file "
                "and was released as a success",
                "conflict",
            )
        base = self._used_by(transit) or self._configured["default"]
        made = learning.made_of(name, base, transit)
        source = {"transit": transit.id, "template": transit.template, "version": base.version}
        with self._lock:
            entry, words = self.save(name, template_to_dict(made), by, trusted, source)
            self._teach(entry, transit, learning.used(transit, base.tuning))
            return self._entries[name], words

    def restore(
        self, name: str, version: int, by: str = "", trusted: bool = True
    ) -> tuple[Entry, list[str]]:
        """Save an old version anew. Raises as :meth:`save`; ``unknown_template`` for no such."""
        old = self.entry(name, version)
        if old is None:
            raise unknown(name, self.names(), version)
        body = template_to_dict(old.template)
        return self.save(name, body, by, trusted, {"restored": version})

    def delete(self, name: str, by: str = "", trusted: bool = True) -> Entry | None:
        """Forget what was saved under a name; the configured template of that name, where there is
        one, stands there again and is the answer. Its history stays.

        Raises BrokerError ``unknown_template``, ``forbidden``, ``conflict`` (it is configured).
        """
        with self._lock:
            self.refresh()
            found = self._entries.get(name)
            if found is None:
                raise unknown(name, self.names())
            if found.configured:
                raise BrokerError(
                    f"template {name!r} is {found.origin}, expected one that was saved", "conflict"
                )
            check_owner(name, self._entries.get(name), by, trusted)
            self._store.delete_document(entrydocs.LEARNED, name)
            self._store.delete_document(entrydocs.KIND, name)
            if name in self._configured:
                self._keep_configured(name)
            self.refresh()
            return self._entries.get(name)

    def learn(self, transit: Transit, tuning: Tuning | None = None) -> bool:
        """Keep the goodput of a transfer where it is the best so far; whether it was.

        Kept with it is ``tuning``, or what the transfer reports to have used; what nobody says is
        taken to be as in its template. Only those teach that had a path, succeeded, and are large
        enough for a rate to mean something. The peak never falls.
        """
        if learning.failure(transit):
            return False
        with self._lock:
            self.refresh()
            known = self._entries.get(transit.template)
            base = self._used_by(transit)
            if known is None or base is None:
                return False
            if transit.bytes < (base.break_even_bytes or learning.LEAST_BYTES):
                return False
            return self._teach(known, transit, tuning or learning.used(transit, base.tuning))

    def tuning_of(self, name: str) -> Tuning | None:
        """What the best transfer with a template was tuned with; None where none has taught it."""
        found = self.entry(name)
        taught = found.learned.get("tuning") if found else None
        return learning.tuning_of(taught) if isinstance(taught, Mapping) else None

    def _used_by(self, transit: Transit) -> Template | None:
        version = self.get(transit.template, transit.template_version)
        return version or self.get(transit.template)

    def _put(self, name: str, body: dict[str, object]) -> None:
        self._store.put_document(entrydocs.KIND, name, body, KEEP)
        self.refresh()

    def _teach(self, known: Entry, transit: Transit, tuning: Tuning) -> bool:
        if transit.goodput_bps <= known.template.peak_bps:
            return False
        body = learning.lesson(transit, tuning)
        self._store.put_document(entrydocs.LEARNED, known.template.name, body, _KEEP_LESSONS)
        self.refresh()
        return True
