"""Search for words in encrypted texts: the database can't do it, so an erasure decrypts them row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.db.models import F, Func, IntegerField, Q, QuerySet

from agentcore_site.lib.key_errors import Unopenable
from agentcore_site.lib.word_erasure import contains_words

AT_ONCE: Final = 500


def encrypted_rows_containing(
    rows: QuerySet[Any], words: Sequence[str], *columns: str, fields: Sequence[str]
) -> Iterator[Any]:
    """The rows in which an encrypted column contains one of the words, in any case, with the values of ``fields``. A
    row that can't be decrypted can be read by no one, and is skipped.

    Raises:
        KeyUnavailable: the key can't be read now.
    """
    sealed = {
        f"{one}_version": Func(F(one), function="encryption_version", output_field=IntegerField()) for one in columns
    }
    some = Q(*((f"{name}__gt", 0) for name in sealed), _connector=Q.OR)
    found = rows.annotate(**sealed).filter(some).only("organization_id", *columns, *fields).order_by()
    for row in found.iterator(chunk_size=AT_ONCE):
        try:
            if any(contains_words(getattr(row, column), words) for column in columns):
                yield row
        except Unopenable:
            continue
