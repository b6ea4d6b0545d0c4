"""Erasure in exports: a file with the words is deleted whole. A new export can be made, without them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.jobs.models import ACTIVE, Job
from agentcore_site.lib.errors import Conflict, Missing
from agentcore_site.lib.key_errors import KeyUnavailable, Unopenable
from agentcore_site.lib.word_erasure import erase_words
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding
from experiences.erasure import stored_queries
from experiences.models import ExportPart, TrajectoryExport
from experiences.trajectories.exports.stored import KIND, files_delete, stored_part

NOTE: Final = (
    "Files of exports that held it were deleted: export again what you still need. What was downloaded is yours."
)


@erasure_handlers.register("exports")
def exports(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: an export is being written."""
    mine = TrajectoryExport.objects.filter(organization_id=organization_id)
    if Job.objects.filter(kind=KIND, organization_id=organization_id, status__in=ACTIVE).exists():
        raise Conflict("Trajectories are being exported. Let that job end, or cancel it, then try again.")
    asked = set(holding(mine, words, texts=(), values=("filters",)).values_list("pk", flat=True))
    words_and_queries = [*words, *stored_queries(organization_id, words)]
    found = [one for one in mine if one.pk in asked or (one.deleted_at is None and _holds(one, words_and_queries))]

    def erase() -> None:
        for one in found:
            transaction.on_commit(partial(files_delete, one), robust=True)
            one.parts.all().delete()
            one.filters, one.deleted_at = erase_words(one.filters, words), one.deleted_at or timezone.now()
            one.save(update_fields=["filters", "deleted_at"])

    return ErasureFinding(len(found), erase, NOTE if found else "")


def _holds(export: TrajectoryExport, words: Sequence[str]) -> bool:
    """Whether one of the texts is in the file, in any case. What can't be read is deleted to be sure."""
    forms = {form.lower() for one in words for form in _written(one)}
    try:
        return any(form in text for part in export.parts.all() for text in _texts(export, part) for form in forms)
    except (KeyUnavailable, Unopenable):
        return True
    except Missing:
        return False


def _written(text: str) -> Iterator[str]:
    """Forms of a text in a file: as it is, within JSON, and within JSON in a cell of CSV."""
    within = json.dumps(text, ensure_ascii=False)[1:-1]
    yield from (text, within, json.dumps(within, ensure_ascii=False)[1:-1])
    yield from (text.replace('"', '""'), within.replace('"', '""'))


def _texts(export: TrajectoryExport, part: ExportPart) -> Iterator[str]:
    """A part as texts in small letters. Those of lines overlap by nothing: a line is never torn."""
    stored = stored_part(export, part)
    if export.format == "parquet":
        yield from _of_parquet(b"".join(stored.read(0, stored.size)))
        return
    rest = b""
    for block in stored.read(0, stored.size):
        whole, found, rest = (rest + block).rpartition(b"\n")
        yield (whole + found).decode().lower()
    yield rest.decode().lower()


def _of_parquet(data: bytes) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(batch_size=1_000):
        rows: list[dict[str, Any]] = batch.to_pylist()
        yield "\n".join(str(value) for row in rows for value in row.values() if isinstance(value, str)).lower()
