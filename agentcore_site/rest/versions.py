"""ETags of rows that people change, and ``If-Match``: a change of what was changed meanwhile is a 412.

A tag names the version of what people change (``versioned`` of a view set), not the bytes of the answer: what the site
itself counts, such as spending or the last use, must not make a change fail. So it answers no ``If-None-Match``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from django.db.models import QuerySet
from django.utils.http import parse_etags
from rest_framework.renderers import JSONRenderer

from agentcore_site.lib.errors import Changed, Invalid

IF_MATCH: Final = "If-Match"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def etag_of(data: Any, names: Sequence[str]) -> str | None:
    """The tag of a whole row as it is answered; None where the answer is another, such as a page of rows."""
    if not names or not isinstance(data, Mapping) or not all(name in data for name in names):
        return None
    plain = json.loads(JSONRenderer().render({name: data[name] for name in names}))
    digest = hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return f'"{digest[:32]}"'


def match(header: str, etag: str | None) -> None:
    """Compares strongly, as RFC 9110 asks of ``If-Match``.

    Raises:
        Invalid: the header holds no tag.
        Changed: the row has another version than each of the tags.
    """
    given = parse_etags(header)
    if not given:
        message = 'Give the ETag of your last answer, with its quotes: If-Match: "9f1c…".'
        raise Invalid(message, fields={"if_match": message})
    if etag is None:
        raise Changed("The resource at this address has no version. Leave If-Match out.")
    if given != ["*"] and etag not in given:
        raise Changed("It was changed since you read it. Read it again, and send your change with the new ETag.")


def locked(rows: QuerySet[Any]) -> None:
    """Waits for writers of these rows and holds them to the end of the transaction, so that no other change comes
    between the comparison and the write."""
    list(rows.order_by().select_for_update(of=("self",), no_key=True).values_list("pk"))
