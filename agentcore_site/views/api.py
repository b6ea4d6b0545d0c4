"""The API as it is browsed: where things are, and the reference made from its description. For everybody, as the
description is; a program that asks for the index gets a map of addresses."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

from agentcore_site.console.pages import shell
from agentcore_site.console.snippets import snippets
from agentcore_site.lib.links import absolute, site_of
from agentcore_site.views.api_reference import TagPage, reference, rendered

KINDS = ["application/json", "text/html"]


class SchemaView(SpectacularAPIView):
    """The description of REST, as YAML or JSON. It changes with a release alone, and its ``ETag`` with it."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse | None:
        renderer = request.accepted_renderer
        body, etag = rendered(renderer.format)
        answer = HttpResponse(body, content_type=renderer.media_type)
        answer["ETag"], answer["Cache-Control"] = etag, "no-cache"
        answer["Content-Disposition"] = f'inline; filename="AgentCore.{renderer.format}"'
        return get_conditional_response(request._request, etag=etag, response=answer)


@require_safe
@vary_on_headers("Accept")
def index(request: HttpRequest) -> HttpResponse:
    """A browser gets a page, a program (which names no type, or JSON) the addresses."""
    if request.get_preferred_type(KINDS) == "text/html":
        context = {"tags": _tags(), "site": site_of(request), **shell(request)}
        return render(request, "api/index.html", context)
    lists = {one.path.removeprefix("/api/v1/"): one.path for tag in _tags() for one in tag.lists}
    found = {
        "description": absolute(request, reverse("api:schema")),
        "documentation": absolute(request, reverse("api:docs")),
        "json_rpc": absolute(request, reverse("jsonrpc")),
        "mcp": absolute(request, "/mcp"),
        "resources": {name: absolute(request, path) for name, path in sorted(lists.items())},
    }
    return JsonResponse(found, json_dumps_params={"indent": 2})


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    return render(request, "api/docs.html", {"tags": _tags(), **shell(request)})


@require_safe
def docs_of(request: HttpRequest, tag: str) -> HttpResponse:
    """Every operation of one tag, each with a request to copy."""
    found = reference().get(tag)
    if found is None:
        raise Http404
    site = site_of(request)
    operations = [(operation, snippets(operation.call, site)) for operation in found.operations]
    context = {"tag": found, "tags": _tags(), "operations": operations, **shell(request)}
    return render(request, "api/tag.html", context)


def _tags() -> list[TagPage]:
    return [*reference().values()]
