"""Form of the webhook that receives the audit log."""

from __future__ import annotations

from django import forms

from agentcore_site.audit_export.models import AuditStream
from agentcore_site.console.forms import RowForm
from agentcore_site.lib.errors import DomainError


class AuditStreamForm(RowForm):
    marker = "url"
    refusals = (DomainError,)
    row_fields = ("url",)
    url = forms.CharField(
        max_length=500,
        label="Webhook",
        help_text="Receives the log's lines as signed POSTs of JSON, in batches, seconds after each seal.",
        widget=forms.TextInput(attrs={"placeholder": "https://", "autocomplete": "off", "spellcheck": "false"}),
    )
    beginning = forms.BooleanField(required=False, initial=True, label="From the first line on")

    @classmethod
    def initial_of(cls, row: AuditStream | None) -> dict[str, str]:
        return {"url": row.url} if row is not None else {}
