"""The view at ``POST /api/v1/jsonrpc``: who calls, within which limits, and the table of all methods."""

from __future__ import annotations

import time
from typing import Any, Final

import orjson
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException, NotAuthenticated, Throttled
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.settings import api_settings

from agentcore_site.lib.async_db import in_thread
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import DomainError
from agentcore_site.middleware import away_message, wait_seconds
from agentcore_site.rest import openrpc
from agentcore_site.rest.jsonrpc import INTERNAL, Call, Table, failure, respond
from agentcore_site.rest.parsing import check_length, too_large
from agentcore_site.rest.schema import MEANINGS
from agentcore_site.rest.throttling import KeyThrottle
from agentcore_site.rest.views import check_sight
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import actor_of
from evaluation import rpc as evaluation
from training.rpc import methods as training

_OURS: Final[Table] = {**training.METHODS, **evaluation.METHODS}
METHODS: Final[Table] = {**_OURS, **openrpc.methods(_OURS, "AgentCore", str(settings.SPECTACULAR_SETTINGS["VERSION"]))}
LONGEST_WAIT: Final = 300.0


@csrf_exempt  # the session's own check runs in `admit`; keys and tokens need none
async def jsonrpc(request: HttpRequest) -> HttpResponse:
    """One request or a batch of at most fifty."""
    if request.method != "POST":
        return answer(failure(None, 405, "Send requests with POST."), 405, {"Allow": "POST"})
    try:
        actor = await in_thread(admit)(request)
        body = request.body
        call = Call(actor, time.monotonic() + LONGEST_WAIT)
        return answer(await respond(body, METHODS, call))
    except APIException as error:
        return refused(error)
    except DomainError as error:
        return answer(failure(None, error.code, error.message), error.code)
    except RequestDataTooBig:
        return answer(failure(None, 413, too_large().message), 413)
    except TROUBLE as error:
        problem = failure(None, INTERNAL, away_message(request, error))
        return answer(problem, 503, {"Retry-After": wait_seconds(error)})


class Unread(BaseParser):
    """The check of a session's CSRF token looks for a form. There is none here: the token comes in the header, and the
    body stays for JSON-RPC."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        return {}


def admit(request: HttpRequest) -> Actor:
    """The actor of a request, by the same means as REST.

    Raises:
        APIException: no credentials, a bad key or token, a forged session request, or too many requests.
        TooLarge, Forbidden: the body is too large, or the key can't see anything.
    """
    ways: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    asked = Request(request, parsers=[Unread()], authenticators=[way() for way in ways])
    check_length(asked)
    if not asked.user.is_authenticated:
        raise NotAuthenticated("Give an API key or a token: Authorization: Bearer ….")
    throttle = KeyThrottle()
    if not throttle.allow_request(asked, None):
        raise Throttled(throttle.wait())
    actor = actor_of(asked)
    check_sight(actor)
    return actor


def refused(error: APIException) -> HttpResponse:
    headers = {"WWW-Authenticate": "Bearer"} if error.status_code == 401 else {}
    if (wait := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(wait)
    detail: Any = error.detail
    message = str(detail.get("detail", "Refused.")) if isinstance(detail, dict) else str(detail)
    return answer(failure(None, error.status_code, message), error.status_code, headers)


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    if body is None:
        return HttpResponse(status=204)
    content = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    return HttpResponse(content, status=status, content_type="application/json", headers=headers)


def describe(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A hook of drf-spectacular: this view is no REST view, so it describes itself."""
    methods = "\n".join(f"- `{name}`: {method.summary}" for name, method in METHODS.items())
    asked = {
        "type": "object",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": {"type": "string", "enum": ["2.0"]},
            "method": {"type": "string", "enum": [*METHODS]},
            "params": {"type": "object", "additionalProperties": {}},
            "id": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        },
        "example": {"jsonrpc": "2.0", "method": "training.list_jobs", "params": {"status": "running"}, "id": 1},
    }
    answered = {
        "type": "object",
        "required": ["jsonrpc", "id"],
        "properties": {
            "jsonrpc": {"type": "string", "enum": ["2.0"]},
            "result": {"type": "object", "additionalProperties": {}},
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": "integer"},
                    "message": {"type": "string"},
                    "data": {"type": "object", "additionalProperties": {}},
                },
            },
            "id": {"oneOf": [{"type": "string"}, {"type": "number"}], "nullable": True},
        },
    }
    result["components"]["schemas"] |= {"JsonRpcRequest": asked, "JsonRpcAnswer": answered}
    result["paths"]["/api/v1/jsonrpc"] = {
        "post": {
            "operationId": "jsonrpc",
            "summary": "JSON-RPC 2.0",
            "description": f"A request, or a batch of at most fifty (docs/api.md has each in full):\n\n{methods}",
            "tags": ["json-rpc"],
            "security": [{"apiKey": []}, {"jwt": []}, {"session": []}],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _one_or_many("JsonRpcRequest")}},
            },
            "responses": {
                "200": {
                    "description": "An answer, or an array of them. For a body that is empty or no JSON: error -32700.",
                    "content": {"application/json": {"schema": _one_or_many("JsonRpcAnswer")}},
                },
                "204": {"description": "Notifications only: nothing is answered."},
            }
            | _refusals(),
        }
    }
    return result


def _refusals() -> dict[str, Any]:
    """Answers before a method is looked up: errors whose code is the status."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/JsonRpcAnswer"}}}
    meanings = {status: MEANINGS[status] for status in ("401", "403", "413", "429")}
    meanings["503"] = "The database does not answer; see `Retry-After`."
    return {status: {"description": meaning, "content": content} for status, meaning in meanings.items()}


def _one_or_many(name: str) -> dict[str, Any]:
    one = {"$ref": f"#/components/schemas/{name}"}
    return {"oneOf": [one, {"type": "array", "items": one}]}
