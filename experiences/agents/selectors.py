"""Reads of agents, datasets and trajectories, scoped to the actor."""

from __future__ import annotations

import uuid
from typing import Any, TypedDict, cast

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require, require_somewhere
from experiences.lessons.selectors import pack_get
from experiences.models import Dataset, DatasetRow, EndpointServer, ModelEndpoint, ToolServer
from experiences.rollouts.conversations import images_of


def endpoints_visible(actor: Actor, *, archived: bool = False) -> QuerySet[ModelEndpoint]:
    """Keys are left in the database: who works with an endpoint reads them there.

    Raises:
        Forbidden: the actor's role does not work with endpoints.
    """
    require_somewhere(actor, "data.view")
    rows = ModelEndpoint.objects.visible_to(actor).select_related("organization", "created_by")
    return rows if archived else rows.filter(archived_at=None)


def endpoint_get(actor: Actor, name: Any) -> ModelEndpoint:
    """An endpoint by id or name.

    Raises:
        Missing: there is none of that name in the actor's organisations.
    """
    rows = endpoints_visible(actor, archived=True)
    try:
        found = rows.filter(id=uuid.UUID(str(name))).first()
    except ValueError:
        found = rows.filter(name=str(name)).first()
    if found is None:
        raise Missing(f"There is no model endpoint {str(name)[:60]!r}.")
    return found


def model_server_of(actor: Actor, endpoint: ModelEndpoint) -> EndpointServer | None:
    """The server that this site runs for an endpoint, as it was reported last."""
    return EndpointServer.objects.visible_to(actor).filter(endpoint=endpoint).first()


def tool_servers_visible(actor: Actor) -> QuerySet[ToolServer]:
    """Raises:
    Forbidden: the actor's role does not work with them."""
    require_somewhere(actor, "data.view")
    return ToolServer.objects.visible_to(actor).select_related("organization").filter(archived_at=None)


def tool_server_get(actor: Actor, server_id: Any) -> ToolServer:
    """Raises:
    Missing: there is none, or it belongs to another organisation.
    Forbidden: as ``tool_servers_visible``."""
    require_somewhere(actor, "data.view")
    rows = ToolServer.objects.visible_to(actor).select_related("organization")
    found = rows.filter(id=as_uuid(server_id, "tool server")).first()
    if found is None:
        raise Missing(f"There is no tool server {str(server_id)[:60]}.")
    return found


def with_rows(actor: Actor, values: dict[str, Any]) -> dict[str, Any]:
    """An agent's values with rows in the place of their ids or names.

    Raises:
        Missing: one is not there.
    """
    found = dict(values)
    for name, get in (("endpoint", endpoint_get), ("reflector", endpoint_get), ("prompt_pack", pack_get)):
        if name in found:
            found[name] = get(actor, found[name]) if found[name] else None
    if "tool_servers" in found:
        found["tool_servers"] = [tool_server_get(actor, server) for server in found["tool_servers"]]
    return found


def datasets_visible(actor: Actor) -> QuerySet[Dataset]:
    return Dataset.objects.visible_to(actor)


def dataset_get(actor: Actor, dataset_id: Any) -> Dataset:
    found = datasets_visible(actor).filter(id=as_uuid(dataset_id, "dataset")).first()
    if found is None:
        raise Missing(f"There is no dataset {dataset_id}.")
    return found


def dataset_versions(dataset: Dataset) -> list[Dataset]:
    """All versions of a dataset, the newest first."""
    found = [dataset]
    while (later := found[0].followed_by.first()) is not None:
        found.insert(0, later)
    while (earlier := found[-1].follows) is not None:
        found.append(earlier)
    return found


def dataset_rows_visible(actor: Actor, dataset: Dataset) -> QuerySet[DatasetRow]:
    """Raises:
    Forbidden: the actor's role does not read rows: they may be what people said in production."""
    require(actor, "data.view", dataset.organization_id)
    return DatasetRow.objects.filter(dataset=dataset)


class UploadedRow(TypedDict):
    """A row of a dataset, as it was uploaded."""

    query: str
    expected_outcome: dict[str, Any]
    metadata: dict[str, Any]


def dataset_rows(dataset: Dataset) -> list[UploadedRow]:
    """The dataset's rows in their order."""
    rows = DatasetRow.objects.filter(dataset=dataset).order_by("index")
    return [cast(UploadedRow, row) for row in rows.values("query", "expected_outcome", "metadata")]


def images_each(dataset: Dataset) -> float:
    """The images of a query, on average. Only conversations have some."""
    rows = DatasetRow.objects.filter(dataset=dataset, metadata__has_key="messages").values("query", "metadata")
    return sum(len(images_of(row["query"], row["metadata"])) for row in rows.iterator()) / max(dataset.size, 1)
