"""What the address of a page asks for, and which of it the page looked at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self

from django.http import HttpRequest, QueryDict
from django.utils.http import url_has_allowed_host_and_scheme

SEARCH: Final = "q"
# What every list knows: its order, and where in it and in which form a person is.
OF_LISTS: Final = ("sort", "cursor", "panel", "as", "view")


class NotedQuery(QueryDict):
    """Parameters that note which of them were looked at by name. Copies and walks over all of them note nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.looked_at: set[str] = set()
        super().__init__(*args, **kwargs)

    @classmethod
    def of(cls, given: QueryDict) -> Self:
        noted = cls("", mutable=True, encoding=given.encoding)
        for name, values in given.lists():
            noted.setlist(name, values)
        noted._mutable = False
        return noted

    def __getitem__(self, key: str) -> Any:
        self.looked_at.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.looked_at.add(str(key))
        return super().__contains__(key)

    def getlist(self, key: str, default: Any = None) -> Any:
        self.looked_at.add(key)
        return super().getlist(key, default)

    def items(self) -> Iterable[tuple[str, Any]]:  # type: ignore[override]
        return ((name, values[-1] if values else []) for name, values in self.lists())


def searched_for(request: HttpRequest) -> str:
    """What the list was searched for; "" where its view looked for no search."""
    return str(request.GET.get(SEARCH, "")).strip() if SEARCH in _looked_at(request) else ""


def ignored(request: HttpRequest) -> list[str]:
    """The parameters of the address that its list did not look at, so that they narrow nothing."""
    known = _looked_at(request)
    return [name for name in request.GET if name not in known and name not in OF_LISTS]


def own_address(request: HttpRequest, wanted: str, otherwise: str) -> str:
    """Where a person is led who ``wanted`` to go there: only to a path of this site. Anything else that a form or an
    address may say (another site, a word that would be taken for a page's name) leads to ``otherwise``."""
    hosts, https = {request.get_host()}, request.is_secure()
    own = wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, hosts, require_https=https)
    return wanted if own else otherwise


def _looked_at(request: HttpRequest) -> frozenset[str]:
    given = request.GET
    return frozenset(given.looked_at if isinstance(given, NotedQuery) else given)
