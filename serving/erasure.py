"""Erasure in releases: one that holds the words goes whole, since it is immutable."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db import connection

from agentcore_site.tenancy.erasure import ErasureFinding, holding, places
from experiences.erasure import ERASURE
from serving.models import Release

NOTE = "Releases were deleted: make new ones of what is left."


@places.register("releases")
def releases(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = Release.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("note",), values=("bundle", "evidence"))
    ids = [str(pk) for pk in found.values_list("pk", flat=True)]

    def erase() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT serving_releases_delete(%s, %s, %s)", [ids, organization_id, ERASURE])

    return ErasureFinding(len(ids), erase, NOTE)
