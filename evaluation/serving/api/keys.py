"""REST: spending of keys on model calls."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.models import ApiKey
from budgets.forms import month_read
from evaluation.serving.keys.filters import CallingKeyFilters
from evaluation.serving.keys.presenters import KeySpendingOut
from evaluation.serving.keys.selectors import calling_keys_visible


class KeySpendingViewSet(ScopedViewSet):
    """Keys that may call models: your own, and all keys of organisations whose keys you manage."""

    queryset = ApiKey.objects.none()
    tag = "budgets"
    serializer_class = KeySpendingOut
    filterset_class = CallingKeyFilters
    orderings = {"-created_at": "created_at", "-spent": "spent_micros", "-calls": "calls"}

    @extend_schema(summary="Spending of keys on model calls")
    def list(self, request: Request) -> Response:
        month: Any = request.query_params.get("month")
        return self.page(calling_keys_visible(self.actor, month_read(month) if month else None), KeySpendingOut)
