"""Health of the warehouse, and how far it and the roll-ups are behind."""

from __future__ import annotations

from agentcore_site.health import DEGRADED, OK, HealthFinding, check_register
from evaluation.warehouse.clickhouse.transports import WarehouseError
from evaluation.warehouse.loading import store_configured
from evaluation.warehouse.models import ChangeSink
from evaluation.warehouse.selectors import behind


def warehouse() -> HealthFinding:
    more = {f"{sink}_behind_seconds": round(behind(sink), 1) for sink in ChangeSink.values}
    store = store_configured()
    if store is None:
        return HealthFinding(OK, "off: dashboards read the roll-ups", more)
    try:
        store.execute("SELECT 1 AS one")
    except WarehouseError:
        return HealthFinding(DEGRADED, "away: dashboards read the roll-ups, and rows wait", more)
    return HealthFinding(OK, "answers", more)


check_register("warehouse", warehouse)
