"""Words in encrypted texts: the database can't look for them there, so an erasure opens them row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.db.models import F, Func, IntegerField, Q, QuerySet

from agentcore_site.encryption.errors import Unopenable
from agentcore_site.lib.word_erasure import contains_words

AT_ONCE: Final = 500


def encrypted_rows_containing(
    rows: QuerySet[Any], words: Sequence[str], *columns: str, fields: Sequence[str]
) -> Iterator[Any]:
    """The rows of which an encrypted column holds one of the words, in any case, with the values of ``fields``. One
    that does not open says nothing to anybody, and is passed over.

    Raises:
        KeyUnavailable: it can't be told now.
    """
    sealed = {
        f"{one}_version": Func(F(one), function="encryption_version", output_field=IntegerField()) for one in columns
    }
    some = Q(*((f"{name}__gt", 0) for name in sealed), _connector=Q.OR)
    found = rows.annotate(**sealed).filter(some).only("organization_id", *columns, *fields).order_by()
    for row in found.iterator(chunk_size=AT_ONCE):
        try:
            if any(contains_words(getattr(row, one), words) for one in columns):
                yield row
        except Unopenable:
            continue
