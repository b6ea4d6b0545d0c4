"""The documents as a site, which `make docs` builds: public text, open to people without an account."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe
from whitenoise.media_types import MediaTypes

from agentcore_site.console.pages import shell

# Browsers show these kinds as text; the types of all others are the same on every machine.
TYPES: Final = MediaTypes(extra_types={".py": "text/plain", ".yaml": "text/plain"})
INLINE: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)  # with an attribute: a file of the site, or data


@require_safe
def document(request: HttpRequest, path: str = "") -> HttpResponseBase:
    site = settings.DOCUMENTS.resolve()
    if not (site / "index.html").is_file():
        return render(request, "agentcore_site/documents_missing.html", shell(request), status=404)
    try:
        file = (site / (f"{path}index.html" if path.endswith("/") or not path else path)).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # no such file, a circle of links, or a name that no file can have
        raise Http404 from None
    if not file.is_relative_to(site):
        raise Http404
    if file.is_dir():
        return HttpResponseRedirect(request.get_full_path(force_append_slash=True))
    content, etag, digests = _read(file, file.stat().st_mtime_ns)
    kind = TYPES.get_type(file.name)
    response = HttpResponse(content, content_type=f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
    response["ETag"] = etag
    answer: Any = get_conditional_response(request, etag=etag, response=response)
    # A browser replaces the policy of a stored page by that of a 304, so both have the digests.
    answer._csp_update = {"script-src": [f"'sha256-{digest}'" for digest in digests]}
    return answer


@lru_cache(maxsize=64)
def _read(file: Path, changed: int) -> tuple[bytes, str, list[str]]:
    """A file's content, its ETag and the digests of its inline scripts. ``changed`` makes a new build a new entry."""
    content = file.read_bytes()
    scripts = INLINE.findall(content) if file.suffix == ".html" else []
    return (
        content,
        f'"{sha256(content).hexdigest()}"',
        [b64encode(sha256(script).digest()).decode() for script in scripts],
    )
