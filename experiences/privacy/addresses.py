"""IP addresses. Loopback, unspecified and netmask addresses stay: they name no person's device."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from experiences.privacy.kinds import Span
from experiences.privacy.normalisation import Reading

_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_QUAD: Final = re.compile(r"0\.0{1,3}\.0{1,3}\.0")  # in the outline
_IPV4: Final = re.compile(
    rf"\d(?<![\w.].)(?<![A-Za-z_]-.)(?<![A-Za-z]/.)\d{{0,2}}(?:\.{_OCTET}){{3}}(?!\w|[.]\w|-[A-Za-z])"
)
_IPV6: Final = re.compile(
    r"[0-9A-Fa-f:](?<![\w:.].)(?:(?<=:):|[0-9A-Fa-f]{0,3}:)[0-9A-Fa-f:]{0,37}"
    r"(?:(?<=:)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})?(?:%[A-Za-z0-9]{1,15})?(?!\w|:\w|\.\d)"
)
# Four numbers with dots behind these are no address.
_NUMBERED: Final = re.compile(
    r"(?:(?<![A-Za-z0-9])(?:v|ver|vers|version|versión|versione|versie|versão|wersja|version_info|release"
    r"|release id|rev|revision|build|firmware"
    r"|section|sections|sec|chapter|table|figure|fig|clause|article|step|paragraph|appendix|item|item no|oid|kapitel"
    r"|abschnitt|upgrade to|upgraded to|update to|updated to|bump to)(?![A-Za-z0-9])[\s_.:=\"'\\]{0,6}"
    r"|\bobjectidentifier\([\"']|§\s?|(?:==|>=|<=|~=|\^|~)\s?)\Z",
    re.IGNORECASE,
)
_HEADING: Final = re.compile(r"\s+[A-Z][a-z]+\s")


def ipv4(reading: Reading) -> Iterator[Span]:
    """Dotted quads that are neither versions nor numbers of sections."""
    text = reading.text
    for quad in _QUAD.finditer(reading.outline):
        start = quad.start()
        while start and quad.start() - start < 2 and reading.outline[start - 1] == "0":
            start -= 1
        found = _IPV4.match(text, start)
        if found is None or found[0].startswith(("0", "127.", "255.")) or int(found[0].partition(".")[0]) > 255:
            continue
        if _NUMBERED.search(text[max(0, start - 20) : start]) or _is_heading(text, start, found.end()):
            continue
        yield Span(start, found.end(), "ip")


def _is_heading(text: str, start: int, end: int) -> bool:
    """As in "2.3.1.4 Further reading" at the beginning of a line."""
    if text[start - 1 : start] not in {"", "\n"} or text.startswith("10.", start):
        return False
    return all(int(part) < 21 for part in text[start:end].split(".")) and bool(_HEADING.match(text, end))


def ipv6(reading: Reading) -> Iterator[Span]:
    """Addresses that the standard library can read, but not slices ("1::2") and not names of code ("abc::def")."""
    for found in _IPV6.finditer(reading.text):
        address, _, _ = found[0].partition("%")
        end = found.end()
        if found[0].endswith(":") and not found[0].endswith("::"):  # "from 2001:db8::1: refused"
            address, end = address[:-1], end - 1
        if _names_device(address):
            yield Span(found.start(), end, "ip")


def _names_device(address: str) -> bool:
    groups = [group for group in re.split("[:.]", address) if group]
    if not any(map(str.isdigit, address)) or max(map(len, groups), default=0) < 3:
        return False
    if len(groups) < 3 and all(map(str.isdigit, groups)) and address[:1] not in "23":
        return False
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_unspecified)
