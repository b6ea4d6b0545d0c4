"""A dataset's rows as a file: the console and REST give the same one."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore_site.rest.row_files import RowFile
from agentcore_site.tenancy.actors import Actor
from experiences.agents.selectors import dataset_rows_visible
from experiences.models import Dataset
from experiences.models.trajectories import DatasetOrigin


class RowOut(serializers.Serializer[Any]):
    query = serializers.CharField()
    expected_outcome = serializers.DictField(help_text='What counts as success, e.g. {"answer": "4"}.')
    metadata = serializers.DictField()


class RowIn(serializers.Serializer[Any]):
    query = serializers.CharField()
    expected_outcome = serializers.DictField(required=False, help_text='What counts as success, e.g. {"answer": "4"}.')
    metadata = serializers.DictField(required=False)


def dataset_file(actor: Actor, dataset: Dataset) -> RowFile:
    """As JSONL it is what an upload takes.

    Raises:
        Forbidden: the actor's role does not read rows.
    """
    return RowFile(dataset.file_name, dataset_rows_visible(actor, dataset), RowOut, "index")


class DatasetOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    domain = serializers.CharField(help_text="What its queries are about; a prompt pack can be chosen by it.")
    size = serializers.IntegerField(help_text="Number of queries.")
    sha256 = serializers.CharField(help_text="Of the cleaned rows: the same rows are one dataset.")
    version = serializers.IntegerField()
    follows = serializers.UUIDField(source="follows_id", allow_null=True, help_text="Previous version.")
    origin = serializers.ChoiceField(choices=DatasetOrigin.choices, help_text="Where its rows come from.")
    origin_detail = serializers.CharField(help_text="The name of the file or of the agent.")
    archived_at = serializers.DateTimeField(allow_null=True, help_text="Since when it is not offered; null: it is.")
    created_at = serializers.DateTimeField()
