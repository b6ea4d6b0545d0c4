"""The bodies of an import of lessons: as JSON, or as a file of JSON Lines."""

from __future__ import annotations

from typing import Any, Final

from django.http import QueryDict
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request

from agentcore_site.lib.storable import unstorable
from agentcore_site.lib.text_uploads import file_text, jsonl_rows, refused
from agentcore_site.rest.parsing import Strict, parsed
from experiences.learning.lessons.states import LONGEST, LessonUpdate
from experiences.lessons.services.importing import MAX_BATCH
from experiences.models import ExperienceKind, ExperienceStatus

ELSEWHERE: Final = ("id", "agent_id", "job_id", "created_at", "updated_at")
LIKE: Final = '{"handle": "x1", "summary": "When ...", "stamp": "..."}'
LARGEST: Final = 2**31 - 1


class RecordIn(Strict):
    """A lesson as ``GET /api/v1/experiences`` gives it. Left out: as of a new lesson."""

    handle = serializers.CharField(max_length=LONGEST["handle"], help_text="Its name among the agent's lessons.")
    summary = serializers.CharField(max_length=LONGEST["summary"])
    stamp = serializers.CharField(max_length=64, help_text="Binds text, handle, version and domain to the prompt.")
    kind = serializers.ChoiceField(choices=ExperienceKind.choices, required=False)
    why = serializers.CharField(max_length=2000, required=False, allow_blank=True)
    domain = serializers.CharField(max_length=LONGEST["domain"], required=False, allow_blank=True)
    status = serializers.ChoiceField(choices=ExperienceStatus.choices, required=False)
    version = serializers.IntegerField(min_value=1, max_value=LARGEST, required=False)
    weight = serializers.FloatField(min_value=0, max_value=1, required=False)
    effect = serializers.FloatField(allow_null=True, required=False)
    effect_error = serializers.FloatField(allow_null=True, required=False)
    rollouts = serializers.IntegerField(min_value=0, max_value=LARGEST, required=False)
    tokens = serializers.IntegerField(min_value=0, required=False, help_text="Not kept: they are counted again.")
    epoch = serializers.IntegerField(min_value=1, max_value=2**15 - 1, required=False)
    group = serializers.CharField(max_length=LONGEST["group"], required=False, allow_blank=True)
    task = serializers.CharField(max_length=200, required=False, allow_blank=True)
    taught_by = serializers.ListField(child=serializers.UUIDField(), required=False)
    parents = serializers.ListField(child=serializers.CharField(max_length=LONGEST["handle"]), required=False)
    ground_truth = serializers.FloatField(allow_null=True, required=False)
    relative_rank = serializers.FloatField(allow_null=True, required=False)
    tool_stats = serializers.ListField(child=serializers.DictField(), required=False)
    id = serializers.UUIDField(required=False, help_text="Not kept: of the row that it was read from.")
    agent_id = serializers.UUIDField(required=False, help_text="Not kept.")
    job_id = serializers.UUIDField(required=False, allow_null=True, help_text="Not kept.")
    created_at = serializers.DateTimeField(required=False, help_text="Not kept.")
    updated_at = serializers.DateTimeField(required=False, help_text="Not kept.")


class ImportIn(Strict):
    agent = serializers.CharField(max_length=100, help_text="Id or slug of the agent that is to have them.")
    records = RecordIn(many=True, allow_empty=False, help_text=f"At most {MAX_BATCH:,}; all of them or none.")


class ImportFile(Strict):
    agent = serializers.CharField(max_length=100, help_text="Id or slug of the agent that is to have them.")
    file = serializers.FileField(help_text="A .jsonl file: one lesson a line.")


class ImportedOut(serializers.Serializer[Any]):
    added = serializers.IntegerField()
    unchanged = serializers.IntegerField(help_text="The agent had them already.")
    differing = serializers.ListField(
        child=serializers.CharField(), help_text="Handles by which the agent has another lesson, which stays as it is."
    )
    quarantined = serializers.ListField(
        child=serializers.CharField(), help_text="Handles whose text looks like an order to a model: a person decides."
    )


IMPORT: Final = OpenApiExample(
    "One lesson",
    {
        "agent": "support-agent",
        "records": [
            {
                "handle": "x1",
                "summary": "When a sum has more than two terms, add them one at a time.",
                "stamp": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "status": "active",
            }
        ],
    },
    request_only=True,
    media_type="application/json",
)


def read_import(request: Request) -> tuple[str, list[LessonUpdate]]:
    """(agent, lessons) of a JSON body or of an uploaded file.

    Raises:
        Invalid, ValidationError: a value, or the line of the file, is wrong.
    """
    data: Any = request.data
    if isinstance(data, QueryDict):
        form = parsed(ImportFile, data.dict())
        rows = jsonl_rows(file_text(form["file"].read()), like=LIKE)
        if reason := unstorable(rows):
            raise refused(f"The file can't be stored: {reason}.")
        data = {"agent": form["agent"], "records": rows}
    values = parsed(ImportIn, data)
    return values["agent"], [_state(record) for record in values["records"]]


def _state(record: dict[str, Any]) -> LessonUpdate:
    kept: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record.items()
        if name not in ELSEWHERE
    }
    return LessonUpdate(**kept)
