"""A provider's usage export against the ledger. Nothing of the file is kept."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import page, sent
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.forms import UsageFileForm
from budgets.selectors import bill_compared
from budgets.usage_files.comparison import difference_words

SHOWN: Final = 400  # lines


@page
def reconcile(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "export", current_organization(actor))
    form = UsageFileForm(sent(request), request.FILES or None)
    context: dict[str, Any] = {"form": form}
    if found := form.applied(bill_compared, actor):
        comparison, file = found
        lines = comparison.differing or comparison.lines
        context |= {
            "comparison": comparison,
            "words": difference_words(comparison),
            "lines": lines[:SHOWN],
            "left_out": max(0, len(lines) - SHOWN),
            "columns": file.columns.items(),
            "notes": file.notes,
            "zone": form.data["zone"],
        }
    return render(request, "budgets/reconcile.html", context, status=form.status)
