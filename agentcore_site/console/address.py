"""Parameters of a page's address, and the record of those that the page used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self

from django.http import HttpRequest, QueryDict
from django.utils.http import url_has_allowed_host_and_scheme

SEARCH: Final = "q"
# Parameters of every list: its order, its position and its format.
OF_LISTS: Final = ("sort", "cursor", "panel", "as", "view")


class NotedQuery(QueryDict):
    """Parameters that record each name that was read. Copies and iterations record nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.read_keys: set[str] = set()
        super().__init__(*args, **kwargs)

    @classmethod
    def of(cls, given: QueryDict) -> Self:
        noted = cls("", mutable=True, encoding=given.encoding)
        for name, values in given.lists():
            noted.setlist(name, values)
        noted._mutable = False
        return noted

    def __getitem__(self, key: str) -> Any:
        self.read_keys.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read_keys.add(str(key))
        return super().__contains__(key)

    def getlist(self, key: str, default: Any = None) -> Any:
        self.read_keys.add(key)
        return super().getlist(key, default)

    def items(self) -> Iterable[tuple[str, Any]]:  # type: ignore[override]
        return ((name, values[-1] if values else []) for name, values in self.lists())


def searched_for(request: HttpRequest) -> str:
    """The list's search text; "" if its view read no search."""
    return str(request.GET.get(SEARCH, "")).strip() if SEARCH in _read_keys(request) else ""


def ignored(request: HttpRequest) -> list[str]:
    """The parameters of the address that the list did not read, so that they filter nothing."""
    known = _read_keys(request)
    return [name for name in request.GET if name not in known and name not in OF_LISTS]


def own_address(request: HttpRequest, wanted: str, otherwise: str) -> str:
    """``wanted`` if it is a path of this site, else ``otherwise``. A form or an address may hold another site, or a
    word that would be taken for a page's name."""
    hosts, https = {request.get_host()}, request.is_secure()
    own = wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, hosts, require_https=https)
    return wanted if own else otherwise


def _read_keys(request: HttpRequest) -> frozenset[str]:
    given = request.GET
    return frozenset(given.read_keys if isinstance(given, NotedQuery) else given)
