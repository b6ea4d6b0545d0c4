"""Admin of roll-ups and of the notes that fill them: read-only."""

from __future__ import annotations

from agentcore_site.admin import SiteTableAdmin
from agentcore_site.identity.administration import LongTableAdmin, list_page
from evaluation.warehouse.models import HourlyMeasure, RowChange, WarehouseStore

list_page(
    HourlyMeasure,
    "hour measure purpose arm model n total organization_id",
    LongTableAdmin,
    list_filter=["purpose", "arm"],
    search_fields=["=measure", "=model", "=agent_id"],
    ordering=["-id"],
)
list_page(RowChange, "id sink kind organization_id hour month created_at", LongTableAdmin, list_filter=["sink", "kind"])
list_page(WarehouseStore, "name batch first filled_at", SiteTableAdmin)
