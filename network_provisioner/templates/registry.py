"""The catalogue of templates (thesis, §3.1): configured, saved, learned from; every version kept.

    built in  <  adon.yml  <  saved in the store           the right one stands where several are

What is configured goes to the store too, as a version like others, where it differs from the last;
so a version's number names the same figures for ever, and a transit that was decided with one finds
it again after any restart. What transfers taught (their best goodput, and with which tuning) is
kept beside the versions, for it says nothing about what the application needs; what nobody vouches
for, for its user alone.

What is saved in self-service stays within the site's :mod:`~.sitepolicy`,
and leaves alone what others saved or the site configured.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from network_provisioner.access import ANYBODY, May, Principal
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import Transit
from network_provisioner.stores.store import Document, Store, StoreError
from network_provisioner.templates import entry as entrydocs
from network_provisioner.templates import learn as learning
from network_provisioner.templates.data import BUILT_IN, template_from_dict, template_to_dict
from network_provisioner.templates.entry import (
    Source,
    TemplateEntry,
    check_owner,
    entry_of,
    figures,
    unknown,
)
from network_provisioner.templates.match import Match, Specification, match
from network_provisioner.templates.sitepolicy import (
    TemplatePolicy,
    capped_template,
    check,
    policy_from_dict,
)
from network_provisioner.templates.template import Template, Tuning

log = logging.getLogger(__name__)

MOST_SAVED = 1000
KEEP = 200  # versions of one template
_LOOK_AGAIN_S = 1.0  # how old may be what is known of another broker's changes
_MOST_OLD = 1000  # old versions, and answers, kept in memory
_KEEP_LESSONS = 5
_OF = "\t"  # between a template and the user whose lesson it is
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class TemplateRegistry:
    """Templates by name. Thread-safe; several may share one store.

    Questions are answered from memory while the store is away; a look into history may raise
    StoreError, and so may every change. ``by`` says whose doing a change is: policy and ownership
    bind all who may not manage templates.
    """

    def __init__(
        self,
        configured: Mapping[str, Template],
        store: Store,
        policy: TemplatePolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``configured``: the built-in templates and those of adon.yml."""
        self.policy = policy or policy_from_dict(None)
        self._configured = dict(configured)
        self._store = store
        self._clock = clock
        self._lock = threading.RLock()
        self._entries: Mapping[str, TemplateEntry] = {}
        self._old: dict[tuple[str, int], TemplateEntry | None] = {}  # versions that were asked for
        self._matches: dict[tuple[str, Specification, str | None], Match] = {}
        self._own: dict[str, Mapping[str, Any]] = {}  # lessons of users that were asked for
        self._levels: dict[str, learning.Levels] = {}
        self._stamps = (-1, -1, -1)
        self._looked_at = float("-inf")
        if store.leads():
            self.keep_configured()
        else:
            self.refresh()

    def keep_configured(self) -> None:
        """Write the configured templates that the store does not have so; where brokers share it,
        once this one leads. Raises StoreError."""
        for name in self._configured:
            self._keep_configured(name)
        self.refresh()

    def get(self, name: str, version: int | None = None) -> Template | None:
        """A template as it is now, or one of its versions; None where there is none."""
        entry = self.entry(name, version)
        return entry.template if entry else None

    def version(self, name: str, number: int) -> Template | None:
        """One version of a template; None where it is not kept, or the store cannot say."""
        try:
            return self.get(name, number)
        except StoreError as error:
            log.warning("template %s %d cannot be had: %s", name, number, error)
            return None

    def entry(self, name: str, version: int | None = None) -> TemplateEntry | None:
        """As :meth:`get`, with where it comes from."""
        kept = self._old  # before the entries, as in explain()
        current = self._now().get(name)
        if version is None or (current is not None and current.template.version == version):
            return current
        if (name, version) in kept:
            return kept[name, version]
        document = self._store.document(entrydocs.KIND, name, version)
        learned = current.learned if current else {}
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

    def history(self, name: str) -> list[tuple[Document, TemplateEntry | None]]:
        """Every version that is kept, oldest first; no entry for one that deleted the template."""
        return [
            (document, None if document.deleted else entry_of(document, self.policy, {}))
            for document in self._store.history(entrydocs.KIND, name)
        ]

    def match(
        self, application: str, wanted: Specification | None = None, user: str | None = None
    ) -> Template | None:
        """The template for an application and what it asks for, or None."""
        return self.explain(application, wanted, user).template

    def explain(
        self, application: str, wanted: Specification | None = None, user: str | None = None
    ) -> Match:
        """As :meth:`match`, with the reason (:func:`~network_provisioner.templates.match.match`).

        Templates of the site that are for the application go before those of self-service, which
        are for the ``user`` of who saved them (None: for all).
        """
        # All transfers of a workflow ask the same. Taken before the entries: where refresh() comes
        # in between, the answer goes into what is thrown away, never an old one into the new.
        wanted = wanted or Specification()
        kept, key = self._matches, (application, wanted, user)
        known = self._now()
        matched = kept.get(key) if kept is self._matches else None
        if matched is None:
            site = [e.template for e in known.values() if e.trusted]
            matched = match(site, application, wanted)
            if matched.how not in ("name", "pattern"):
                own = [e for e in known.values() if user is None or e.is_for(user)]
                matched = match([e.template for e in own], application, wanted)
            if len(kept) < _MOST_OLD:
                kept[key] = matched
        return matched

    def refresh(self) -> None:
        """Take in what others changed, now."""
        with self._lock:
            self._looked_at = self._clock()
            stamps = (
                self._store.documents_stamp(entrydocs.KIND),
                self._store.documents_stamp(entrydocs.LEARNED),
                self._store.documents_stamp(entrydocs.LEVELS),
            )
            if stamps == self._stamps:
                return
            documents = self._store.documents(entrydocs.LEARNED)
            lessons = [d.name for d in documents if _OF not in d.name]
            learned = {n: learning.best(self._store.history(entrydocs.LEARNED, n)) for n in lessons}
            levels: dict[str, learning.Levels] = {
                d.name: d.body for d in self._store.documents(entrydocs.LEVELS)
            }
            entries = {}
            for document in self._store.documents(entrydocs.KIND):
                name = document.name
                entry = entry_of(document, self.policy, learned.get(name, {}), levels.get(name))
                # What another broker has in its adon.yml is not for this one.
                if entry and (name in self._configured or not entry.configured):
                    entries[name] = entry
            self._levels = levels
            self._entries, self._old, self._matches, self._own = entries, {}, {}, {}
            self._stamps = stamps

    # -- changes -----------------------------------------------------------------------------

    def save(
        self,
        name: str,
        body: object,
        by: Principal = ANYBODY,
        source: Source | None = None,
    ) -> tuple[TemplateEntry, list[str]]:
        """Save a new version, and say what the policy lowered. Saving the figures that stand there
        already makes no new one. In self-service it is found for the users of ``by`` alone.

        Raises InputError for a template that is none or needs more than the site allows,
        BrokerError ``forbidden`` for one that is not the caller's.
        """
        if not _NAME.match(name):
            raise InputError(
                f"template name {name[:80]!r}, expected letters, digits and . _ - (at most 64)"
            )
        template = template_from_dict(name, body)
        words: list[str] = []
        with self._lock:
            self.refresh()
            check_owner(name, self._entries.get(name), by)
            if not by.may(May.MANAGE):
                check(template, self.policy)
                template, words = capped_template(template, self.policy)
                self._check_number(name, by)
            now = self._entries.get(name)
            if now is None and len(self._entries) >= MOST_SAVED:
                raise BrokerError(f"{MOST_SAVED} templates are saved, expected fewer", "conflict")
            if now is None or now.by != by.name or figures(now.template) != figures(template):
                body = entrydocs.body_of(template, entrydocs.SAVED, by, source)
                self._store.put_document(entrydocs.KIND, name, body, KEEP)
                self.refresh()
            return self._entries[name], words

    def save_from(
        self, name: str, transit: Transit, by: Principal = ANYBODY
    ) -> tuple[TemplateEntry, list[str]]:
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
        source = {
            "transit": transit.id,
            "template": transit.request.template,
            "version": base.version,
        }
        with self._lock:
            entry, words = self.save(name, template_to_dict(made), by, source)
            self._teach(entry, transit, learning.used_tuning(transit, base.tuning))
            return self._entries[name], words

    def restore(
        self, name: str, version: int, by: Principal = ANYBODY
    ) -> tuple[TemplateEntry, list[str]]:
        """Save an old version anew. Raises as :meth:`save`; ``unknown_template`` for no such."""
        old = self.entry(name, version)
        if old is None:
            raise unknown(name, self.names(), version)
        return self.save(name, template_to_dict(old.template), by, {"restored": version})

    def delete(self, name: str, by: Principal = ANYBODY) -> TemplateEntry | None:
        """Forget what was saved under a name; the configured template of that name, where there is
        one, stands there again and is the answer. Its history stays.

        Raises BrokerError ``unknown_template``, ``forbidden``, ``conflict`` (it is configured).
        """
        with self._lock:
            self.refresh()
            entry = self._entries.get(name)
            if entry is None:
                raise unknown(name, self.names())
            if entry.configured:
                raise BrokerError(
                    f"template {name!r} is {entry.origin}, expected one that was saved", "conflict"
                )
            check_owner(name, entry, by)
            self._forget_lessons(name)
            self._store.delete_document(entrydocs.KIND, name)
            if name in self._configured:
                self._keep_configured(name)
            self.refresh()
            return self._entries.get(name)

    def reset(self, name: str, by: Principal = ANYBODY) -> TemplateEntry:
        """Forget what transfers taught a template: all of it, or in self-service what those of the
        caller's users taught for themselves. Raises BrokerError ``unknown_template``."""
        with self._lock:
            self.refresh()
            if name not in self._entries:
                raise unknown(name, self.names())
            self._forget_lessons(name, None if by.may(May.MANAGE) else by.users or {by.name})
            self.refresh()
            return self._entries[name]

    def learn(self, transit: Transit, tuning: Tuning | None = None) -> bool:
        """Keep the goodput of a transfer where it is the best so far; whether it was.

        Kept with it is ``tuning``, or what the transfer reports to have used; what nobody says is
        taken to be as in its template. Only those teach that had a path, succeeded, and are large
        enough for a rate to mean something; one that nobody vouches for, its user alone. The peak
        fades (:func:`~.learn.peak_at`).
        """
        if learning.failure(transit):
            return False
        with self._lock:
            self.refresh()
            known = self._entries.get(transit.request.template)
            base = self._used_by(transit)
            if known is None or base is None:
                return False
            if transit.usage.bytes < (base.break_even_bytes or learning.LEAST_BYTES):
                return False
            if transit.usage.vouched and transit.grant.granted_bps > 0:
                self._note_goodput(known.template.name, transit)
                known = self._entries[known.template.name]
            return self._teach(known, transit, tuning or learning.used_tuning(transit, base.tuning))

    def taught(self, name: str, user: str = "") -> Mapping[str, Any]:
        """What the best transfer with a template taught, of those that all believe and the user's
        own; empty for nothing."""
        entry = self.entry(name)
        taught: Mapping[str, Any] = entry.learned if entry else {}
        own = self._lesson_of(name, user) if user else {}
        return max(taught, own, key=lambda lesson: lesson.get("peak", 0.0))

    def tuning_of(self, name: str, user: str = "") -> Tuning | None:
        """What that transfer was tuned with; None where none has taught it."""
        tuning = self.taught(name, user).get("tuning")
        return learning.tuning_of(tuning) if isinstance(tuning, Mapping) else None

    # -- within ------------------------------------------------------------------------------

    def _check_number(self, name: str, by: Principal) -> None:
        most = self.policy.max_templates
        own = [e for e in self._entries.values() if e.by == by.name and not e.configured]
        if most is not None and name not in self._entries and len(own) >= most:
            raise BrokerError(
                f"{by.name} has saved {len(own)} templates, expected at most {most}: delete one",
                "conflict",
            )

    def _now(self) -> Mapping[str, TemplateEntry]:
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

    def _used_by(self, transit: Transit) -> Template | None:
        version = self.get(transit.request.template, transit.request.template_version)
        return version or self.get(transit.request.template)

    def _lesson_of(self, name: str, user: str) -> Mapping[str, Any]:
        kept, key = self._own, f"{name}{_OF}{user}"
        if key not in kept:
            try:
                lesson = learning.best(self._store.history(entrydocs.LEARNED, key))
            except StoreError as error:
                log.warning(
                    "what template %s learned from %s cannot be read: %s", name, user, error
                )
                return {}
            if len(kept) >= _MOST_OLD:
                return lesson
            kept[key] = lesson
        return kept[key]

    def _forget_lessons(self, name: str, users: Collection[str] | None = None) -> None:
        for document in self._store.documents(entrydocs.LEARNED):
            template, _, user = document.name.partition(_OF)
            if template == name and (users is None or user in users):
                self._store.delete_document(entrydocs.LEARNED, document.name)
        if users is None and name in self._levels:
            self._store.delete_document(entrydocs.LEVELS, name)

    def _note_goodput(self, name: str, transit: Transit) -> None:
        levels = learning.with_goodput(
            self._levels.get(name, {}), transit.grant.granted_bps, transit.usage.goodput_bps
        )
        self._store.put_document(entrydocs.LEVELS, name, levels, _KEEP_LESSONS)
        self.refresh()

    def _teach(self, known: TemplateEntry, transit: Transit, tuning: Tuning) -> bool:
        name, taught = known.template.name, known.learned
        if not transit.usage.vouched:
            taught = self._lesson_of(name, transit.request.user)
            name += f"{_OF}{transit.request.user}"
        if transit.usage.goodput_bps <= learning.peak_at(taught, transit.grant.released_at):
            return False
        body = learning.lesson(transit, tuning)
        self._store.put_document(entrydocs.LEARNED, name, body, _KEEP_LESSONS)
        self.refresh()
        return True
