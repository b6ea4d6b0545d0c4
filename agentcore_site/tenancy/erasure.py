"""Erasure by subject: everything that holds what names a person is found and deleted, and a report proves it.

Each app registers its handlers: most are one call of ``personal_rows``. A handler prepares (it finds, and holds what it
will delete), then erases. Afterwards every handler searches again, and the report states what is left: only what may
not be changed, or can't be read, may be left. The report keeps a keyed digest of each identifier, not the identifier:
a person who knows the identifier can check that it was erased, and cannot read it there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final, Protocol

from django.conf import settings
from django.db import transaction
from django.db.models import Func, Model, Q, QuerySet, TextField
from django.db.models.functions import Cast

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.registry import Registry
from agentcore_site.lib.word_erasure import NO_PROGRAM_KEYS, ProgramKeys, contains_words, erase_words
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Erasure
from agentcore_site.tenancy.permissions import current_organization, require

SHORTEST: Final = 4  # characters: shorter ones would find half of everything
MOST: Final = 20


@dataclass(frozen=True)
class ErasureFinding:
    """The finding of a handler: the number of rows, and a function that erases them. ``stays`` of them can't be erased
    here: the report counts them as left, and ``note`` says why."""

    rows: int
    erase: Callable[[], object]
    note: str = ""
    stays: int = 0


class ErasureHandler(Protocol):
    """Finds an organisation's rows that hold one of the words, in any case.

    Raises:
        Conflict: they can't be erased now; the message says what to do first.
    """

    def __call__(self, organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding: ...


_under_way: ContextVar[uuid.UUID] = ContextVar("erasure_under_way")
erasure_handlers: Registry[ErasureHandler] = Registry("handler of personal data", entry_point_group="agentcore.erasure")


def subject_erase(actor: Actor, identifiers: Sequence[str], *, dry_run: bool = False) -> Erasure:
    """Deletes all that holds one of the identifiers (an address, a name, a number at a customer's).

    With ``dry_run`` nothing is changed, and the report is not stored: it says what would be found, and left.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: an identifier is too short to identify a person.
        Conflict: running jobs use what would be erased.
    """
    organization = current_organization(actor)
    require(actor, "subject.erase", organization)
    words = _words(identifiers)
    with transaction.atomic():
        found = {name: handler(organization.id, words) for name, handler in erasure_handlers.items()}
        report = Erasure(
            organization=organization,
            requested_by=Actor.of(actor).user,
            digests=[digest(word) for word in words],
            found={name: one.rows for name, one in found.items()},
            left={},
            notes=[finding.note for finding in found.values() if finding.note and finding.rows],
        )
        if dry_run:
            report.left = {name: one.stays for name, one in found.items()}
            return report
        report.save(force_insert=True)  # before: what may be erased by its order alone looks for it
        under_way = _under_way.set(report.id)
        try:
            for one in found.values():
                one.erase()
        finally:
            _under_way.reset(under_way)
        after = {name: handler(organization.id, words) for name, handler in erasure_handlers.items()}
        report.left = {name: one.rows for name, one in after.items()}
        if any(one.rows > one.stays for one in after.values()):
            where = ", ".join(f"{name}: {one.rows}" for name, one in after.items() if one.rows > one.stays)
            raise Conflict(f"Nothing was erased: some rows would have been left ({where}). Try again.")
        report.save(update_fields=["left"])
        record(actor, "subject.erased", report, organization=organization.id, after={"found": report.found})
    return report


def erasure_under_way() -> uuid.UUID:
    """The erasure that is being done. The database's functions ask for it.

    Raises:
        LookupError: none is.
    """
    return _under_way.get()


def erasures_visible(actor: Actor) -> QuerySet[Erasure]:
    return Erasure.objects.visible_to(actor).select_related("requested_by")


def digest(identifier: str) -> str:
    """The keyed digest that a report has for an identifier."""
    return hmac.new(settings.SECRET_KEY.encode(), identifier.casefold().encode(), hashlib.sha256).hexdigest()


def holding(rows: QuerySet[Any], words: Sequence[str], *, texts: Sequence[str], values: Sequence[str] = ()) -> Any:
    """The rows of which a text column or a JSON column holds one of the words, in any case. JSON that is encrypted
    holds none here (``agentcore_site.encryption.search``)."""
    rows = rows.annotate(**{f"_{name}_text": readable(name) for name in values})
    wanted = [Q(**{f"{name}__icontains": word}) for name in texts for word in words]
    # A word inside JSON is there as JSON writes it.
    wanted += [
        Q(**{f"_{name}_text__icontains": json.dumps(word, ensure_ascii=False)[1:-1]})
        for name in values
        for word in words
    ]
    return rows.filter(reduce(or_, wanted))


def readable(name: str) -> Func:
    """A JSON column as a text in which words can be looked for."""
    return Func(Cast(name, TextField()), function="encryption_readable", output_field=TextField())


def rows_saying(
    rows: QuerySet[Any],
    words: Sequence[str],
    *,
    texts: Sequence[str] = (),
    values: Sequence[str] = (),
    own: Mapping[str, ProgramKeys] | None = None,
) -> list[Any]:
    """The rows that hold one of the words, in any case; in the JSON columns ``own``, elsewhere than in what the program
    alone writes there."""
    found = list(holding(rows, words, texts=texts, values=values)) if texts or values else []
    known = {row.pk for row in found}
    for name, part in (own or {}).items():
        # Many rows may hold a word in what the program wrote ("status"), and are let go again.
        candidates = holding(rows, words, texts=(), values=(name,)).iterator()
        more = [row for row in candidates if contains_words(getattr(row, name), words, part)]
        found += [row for row in more if row.pk not in known]
        known |= {row.pk for row in more}
    return found


def rewritten(
    rows: QuerySet[Any],
    words: Sequence[str],
    *,  # a table of handlers names columns by their kind
    texts: Sequence[str] = (),
    values: Sequence[str] = (),
    names: Sequence[str] = (),
    own: Mapping[str, ProgramKeys] | None = None,
    note: str = "",
) -> ErasureFinding:
    """The rows stay, and the words are taken out of their columns: texts, JSON or lists (``values``, and ``own`` with
    what stays there), and ``names``, which have to stay different from each other and to fit an address, and are
    replaced as a whole."""
    parts = dict.fromkeys((*texts, *values), NO_PROGRAM_KEYS) | dict(own or {})
    found = rows_saying(rows, words, texts=(*texts, *names), values=values, own=own)

    def erase() -> None:
        for row in found:
            changes = {name: erase_words(getattr(row, name), words, part) for name, part in parts.items()}
            changes |= {
                name: f"erased-{str(row.pk)[-12:]}" for name in names if contains_words(getattr(row, name), words)
            }
            for name in texts:
                changes[name] = changes[name][: rows.model._meta.get_field(name).max_length]
            rows.model._base_manager.filter(pk=row.pk).update(**changes)

    return ErasureFinding(len(found), erase, note)


def deleted(
    rows: QuerySet[Any], words: Sequence[str], *, texts: Sequence[str] = (), values: Sequence[str] = (), note: str = ""
) -> ErasureFinding:
    found = holding(rows, words, texts=texts, values=values)
    return ErasureFinding(found.count(), found.delete, note)


def emptied(rows: QuerySet[Any], words: Sequence[str], *, text: str, note: str) -> ErasureFinding:
    """The column is emptied as a whole: the rest of an address could be another person's address."""
    found = holding(rows, words, texts=(text,))
    return ErasureFinding(found.count(), lambda: found.update(**{text: ""}), note)


def staying(rows: QuerySet[Any], words: Sequence[str], *, texts: Sequence[str], note: str) -> ErasureFinding:
    """The rows hold the words and stay as they are; the report says so."""
    found = holding(rows, words, texts=texts).count()
    return ErasureFinding(found, lambda: None, note, stays=found)


def personal_rows(
    name: str,
    model: type[Model],
    act: Callable[..., ErasureFinding],
    *,
    path: str = "organization_id",
    **columns: Any,
) -> None:
    """Registers a handler: ``act`` (``rewritten``, ``deleted``, ``emptied`` or ``staying``) on the organisation's rows
    of ``model``. ``path`` leads from a row to its organisation; ``columns`` are the arguments of ``act``."""

    @erasure_handlers.register(name)
    def handler(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
        return act(model._default_manager.filter(**{path: organization_id}), words, **columns)


def _words(identifiers: Sequence[str]) -> list[str]:
    words = list(dict.fromkeys(" ".join(str(identifier).split()) for identifier in identifiers))
    if not words or len(words) > MOST:
        raise Invalid(f"Give 1 to {MOST} identifiers.", fields={"identifiers": f"1 to {MOST} of them."})
    short = next((word for word in words if len(word) < SHORTEST), None)
    if short is not None:
        message = f"{short!r} is too short: it would find other people's data too. Give at least {SHORTEST} characters."
        raise Invalid(message, fields={"identifiers": message})
    return words
