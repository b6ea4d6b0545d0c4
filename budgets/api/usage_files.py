"""REST: a provider's usage export against the ledger. Nothing of the file is kept."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.money import Money
from agentcore_site.rest.parsing import FileParser, Strict, parsed
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.models import LedgerEntry
from budgets.selectors import bill_compared
from budgets.usage_files.comparison import VERDICTS, difference_words, zone_of


class Zone(serializers.CharField):
    """A time zone by its name."""

    def to_internal_value(self, data: Any) -> tzinfo:  # type: ignore[override]
        try:
            return zone_of(super().to_internal_value(data))
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


class UsageFilesIn(Strict):
    file = serializers.FileField(
        help_text="CSV or JSON of at most 16 MB: by day and model, with a cost, tokens or both."
    )
    second = serializers.FileField(
        required=False, help_text="Tokens of the same days, where costs have a file of their own."
    )
    zone = Zone(
        max_length=60, required=False, help_text="Of its days: UTC (default), UTC-8, or a name such as Europe/Berlin."
    )


class SideOut(Shape):
    """Sums of a day and model on one side. Null: the side does not say."""

    cost = Money(allow_null=True)
    input_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    calls = serializers.IntegerField(help_text="Of the ledger.")
    estimated = serializers.IntegerField(help_text="Calls whose tokens were counted here.")
    charged = serializers.IntegerField(help_text="Calls without an answer in time, which were charged.")


class ComparedLineOut(Shape):
    day = serializers.DateField()
    model = serializers.CharField(help_text="Empty: the file names none.")
    ledger = SideOut(source="ours", allow_null=True, help_text="Null: the ledger has no such call.")
    provider = SideOut(source="theirs", allow_null=True, help_text="Null: the file has no such line.")
    difference = Money(allow_null=True, help_text="The ledger less the provider; null: the file has no costs.")
    reason = serializers.ChoiceField(choices=list(VERDICTS), source="verdict")
    why = serializers.CharField(help_text="The difference in words.")


class ReconciliationOut(Shape):
    """Days and models of a provider's file beside the ledger."""

    first = serializers.DateField()
    last = serializers.DateField()
    ledger = Money(source="ours_micros")
    provider = Money(source="theirs_micros", allow_null=True, help_text="Null: the file has no costs.")
    agrees = serializers.BooleanField(help_text="Whether no line needs a look.")
    words = serializers.CharField(help_text="The difference in a sentence.")
    better_hours = serializers.IntegerField(
        allow_null=True, help_text="Hours from UTC at which its days fit far better; null: they fit."
    )
    lines = ComparedLineOut(many=True)
    notes = serializers.ListField(
        child=serializers.CharField(), default=list, help_text="Remarks on the file, and lines that were left out."
    )

    computed = {"agrees": lambda found: not found.differing, "words": difference_words}


class ReconciliationViewSet(ScopedViewSet):
    queryset = LedgerEntry.objects.none()
    tag = "budgets"
    serializer_class = ReconciliationOut
    parser_classes = (FileParser,)
    pagination_class = None  # type: ignore[assignment]
    filter_backends = ()
    idempotent = ()

    @extend_schema(
        summary="Compare a provider's usage export with the ledger",
        request={"multipart/form-data": UsageFilesIn},
        responses=ReconciliationOut,
    )
    def reconcile(self, request: Request) -> Response:
        """By day and model, each difference with its reason. Needs the right to export. Nothing of the file is kept."""
        require(self.actor, "export", current_organization(self.actor))  # before the body is read
        asked = parsed(UsageFilesIn, request.data)
        files = [one.read() for one in (asked["file"], asked.get("second")) if one]
        found, file = bill_compared(self.actor, files=files, zone=asked.get("zone", UTC))
        return Response(ReconciliationOut(found).data | {"notes": file.notes})
