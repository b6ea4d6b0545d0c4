"""Erasure in roll-ups and in the warehouse. Trajectories that an erasure deletes are noted like all that are deleted;
here what the warehouse itself holds is found and taken from its disk, in every version, before the erasure reports."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.erasure import ErasureFinding, deleted, erasure_handlers, personal_rows
from evaluation.warehouse.clickhouse.client import ClickHouseStore
from evaluation.warehouse.clickhouse.transports import WarehouseError
from evaluation.warehouse.loading import deleted_purge, store_configured
from evaluation.warehouse.models import HourlyMeasure, WarehouseStore

HOLDING: Final = (
    "organization_id = {organization:UUID} AND is_deleted = 0 AND arrayExists(word -> positionCaseInsensitiveUTF8("
    "arrayStringConcat([query, error, model, steps, arrayStringConcat(mapKeys(components), '\\n')], '\\n'), word) > 0,"
    " {words:Array(String)})"
)
AWAY: Final = "The warehouse does not answer, and may hold what is to be erased. Try again when it does."

# Names of models and of reward components; the hours are recounted without the erased trajectories.
personal_rows("roll-ups of trajectories", HourlyMeasure, deleted, texts=("model", "measure"))


@erasure_handlers.register("warehouse")
def warehouse(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: there is a warehouse, and it can't be asked."""
    if not WarehouseStore.objects.exists():
        return ErasureFinding(0, lambda: None)
    store = store_configured()
    if store is None:
        raise Conflict(
            "A warehouse was set up and CLICKHOUSE_URL does not name it. Set it, or `warehouse_setup --off`."
        )
    # Inside of JSON a word is as JSON writes it.
    wanted = [*words, *(json.dumps(word, ensure_ascii=False)[1:-1] for word in words)]
    given = {"organization": organization_id, "words": list(dict.fromkeys(wanted))}
    try:
        [found] = store.execute(f"SELECT count() AS n FROM trajectories WHERE {HOLDING}", given)  # noqa: S608
    except WarehouseError as error:
        raise Conflict(AWAY) from error
    return ErasureFinding(int(found["n"]), lambda: _erase(store, given))


def _erase(store: ClickHouseStore, given: dict[str, Any]) -> None:
    """Under the lock of who fills it, so that none sends a row that this transaction has deleted."""
    place = WarehouseStore.objects.select_for_update(no_key=True).get()
    place.batch += 1
    place.save()
    try:
        store.command(
            "INSERT INTO trajectories (organization_id, hour, id, version, is_deleted)"  # noqa: S608  (our own words)
            f" SELECT DISTINCT organization_id, hour, id, {{batch:UInt64}}, 1 FROM trajectories WHERE {HOLDING}",
            given | {"batch": place.batch},
        )
        deleted_purge(store, place.batch)
    except WarehouseError as error:
        raise Conflict(AWAY) from error
