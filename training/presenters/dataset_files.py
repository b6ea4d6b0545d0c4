"""A dataset's rows as a file: the console and REST give the same one."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore_site.rest.row_files import RowFile
from agentcore_site.tenancy.actors import Actor
from experiences.agents.selectors import dataset_rows_visible
from experiences.models import Dataset


class RowOut(serializers.Serializer[Any]):
    query = serializers.CharField()
    expected_outcome = serializers.DictField(help_text='What counts as success, e.g. {"answer": "4"}.')
    metadata = serializers.DictField()


def dataset_file(actor: Actor, dataset: Dataset) -> RowFile:
    """As JSONL it is what an upload takes.

    Raises:
        Forbidden: the actor's role does not read rows.
    """
    return RowFile(dataset.file_name, dataset_rows_visible(actor, dataset), RowOut, "index")
