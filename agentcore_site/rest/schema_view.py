"""The OpenAPI document as it is served: made once in each process, for a second of its processor."""

from __future__ import annotations

import hashlib
from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpResponse
from django.utils.cache import get_conditional_response
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

_making = Lock()


class SchemaView(SpectacularAPIView):
    """The description of REST, as YAML or JSON. It changes with a release alone, and its ``ETag`` with it."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse | None:
        renderer = request.accepted_renderer
        with _making:  # of several callers at once the first makes it
            body, etag = _description(renderer.format)
        answer = HttpResponse(body, content_type=renderer.media_type)
        answer["ETag"], answer["Cache-Control"] = etag, "no-cache"
        answer["Content-Disposition"] = f'inline; filename="AgentCore.{renderer.format}"'
        return get_conditional_response(request._request, etag=etag, response=answer)


@cache
def _description(form: str) -> tuple[bytes, str]:
    """(the document in this form, its ETag)."""
    view = SpectacularAPIView
    schema = view.generator_class(urlconf=view.urlconf).get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    renderer = OpenApiJsonRenderer() if form == OpenApiJsonRenderer.format else OpenApiYamlRenderer()
    text = renderer.render(schema, renderer_context={})
    body = text.encode() if isinstance(text, str) else text
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
