"""Prompt packs as folders: ``manifest.json`` and the files that its texts came from.

``system`` and each of ``inject`` is a text, or ``file:PATH`` for the content of a file of the pack. ``sources`` lists
every file beside the manifest with its SHA-256, so that a changed one is named. ``stamp`` is the SHA-256 of it all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiences.learning.lessons.guards import MAX_WORDS
from experiences.learning.lessons.stamps import PackSource, StampRefused, content_digest, pack_check, pack_stamp

MANIFEST: Final = "manifest.json"
KNOWN: Final = frozenset({"id", "domain", "stamp", "system", "inject", "experienceSlots", "maxWords", "sources"})
FILE: Final = "file:"
LARGEST: Final = 1_000_000  # bytes of one file


@dataclass(frozen=True, slots=True)
class Manifest:
    """A pack as it was read; ``path`` is its manifest."""

    path: Path
    id: str
    domain: str
    stamp: str
    system: str
    inject: tuple[str, ...]
    experience_slots: int
    max_words: int
    sources: tuple[PackSource, ...]


def manifests_under(folder: Path) -> list[Path]:
    """The manifest of the folder itself, else those of the folders in it.

    Raises:
        Refused: there is none.
    """
    if (folder / MANIFEST).is_file():
        return [folder / MANIFEST]
    found = sorted(folder.glob(f"*/{MANIFEST}"))
    if not found:
        raise StampRefused(str(folder), f"there is no {MANIFEST} in it, nor in a folder in it")
    return found


def manifest_read(path: Path) -> Manifest:
    """A pack whose sources and stamp were checked.

    Raises:
        Refused: the manifest or a file is missing, unstamped or altered; the path is named.
    """
    values = _values(path)
    if not values.get("stamp"):
        raise StampRefused(str(path), "it bears no stamp")
    listed = _listed(path, values)
    _check_files(path.parent, listed)
    manifest = _made(path, values, listed)
    pack_check(str(path), manifest.stamp, manifest.system, manifest.inject, listed)
    return manifest


def manifest_stamp(path: Path) -> Manifest:
    """Writes sources and stamp into a manifest: its author vouches for its present texts.

    Raises:
        Refused: it can't be read.
    """
    values = _values(path)
    sources = tuple(PackSource(name, content_digest(_content(file))) for name, file in _files(path.parent).items())
    manifest = _made(path, values, sources)
    stamp = pack_stamp(manifest.system, manifest.inject, sources)
    values |= {"sources": [source.as_dict() for source in sources], "stamp": stamp}
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return _made(path, values, sources)


def _values(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(_content(path))
    except ValueError as error:
        raise StampRefused(str(path), f"it is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise StampRefused(str(path), "it is not a JSON object")
    if unknown := sorted(set(values) - KNOWN):
        raise StampRefused(str(path), f"it has the unknown key {unknown[0]!r}; known: {', '.join(sorted(KNOWN))}")
    return values


def _listed(path: Path, values: Mapping[str, Any]) -> tuple[PackSource, ...]:
    found = values.get("sources", [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise StampRefused(str(path), "sources is a list of {path, sha256}")
    return tuple(PackSource.of(one) for one in found)


def _check_files(folder: Path, listed: tuple[PackSource, ...]) -> None:
    there = _files(folder)
    for source in listed:
        if source.path not in there:
            raise StampRefused(str(folder / source.path), "it is one of the pack's sources and is not there")
        if content_digest(_content(there[source.path])) != source.sha256:
            raise StampRefused(str(folder / source.path), "it was altered after the pack was stamped")
    if extra := sorted(set(there) - {source.path for source in listed}):
        raise StampRefused(str(folder / extra[0]), "it is not among the sources that were stamped")


def _files(folder: Path) -> dict[str, Path]:
    """Every file of the pack by its path within it; nothing outside of the folder is followed.

    Raises:
        Refused: one of them is a link.
    """
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_symlink():
            raise StampRefused(str(file), "a pack holds no links")
        if file.is_file() and file != folder / MANIFEST:
            found[file.relative_to(folder).as_posix()] = file
    return found


def _made(path: Path, values: Mapping[str, Any], sources: tuple[PackSource, ...]) -> Manifest:
    inject = values.get("inject", [])
    if not isinstance(inject, list):
        raise StampRefused(str(path), "inject is a list of texts")
    names = {source.path for source in sources}
    return Manifest(
        path=path,
        id=_text(path, "id", values.get("id", path.parent.name)),
        domain=_text(path, "domain", values.get("domain", "")),
        stamp=_text(path, "stamp", values.get("stamp", "")),
        system=_text_of(path, "system", values.get("system", ""), names),
        inject=tuple(_text_of(path, f"inject {n}", one, names) for n, one in enumerate(inject)),
        experience_slots=_count(path, "experienceSlots", values.get("experienceSlots", 20), least=0),
        max_words=_count(path, "maxWords", values.get("maxWords", MAX_WORDS), least=1),
        sources=sources,
    )


def _text_of(path: Path, name: str, value: Any, names: set[str]) -> str:
    """A text, or the content of the file that it names."""
    text = _text(path, name, value)
    if not text.startswith(FILE):
        return text
    if (file := text.removeprefix(FILE)) not in names:
        raise StampRefused(str(path.parent / file), f"{name} names it, and it is not among the pack's sources")
    try:
        return _content(path.parent / file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StampRefused(str(path.parent / file), "it is not UTF-8") from error


def _text(path: Path, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise StampRefused(str(path), f"{name} is a text")
    return value


def _count(path: Path, name: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1000:
        raise StampRefused(str(path), f"{name} is a whole number between {least} and 1,000")
    return value


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise StampRefused(str(path), f"it can't be read ({error.strerror})") from error
    if len(content) > LARGEST:
        raise StampRefused(str(path), f"it is larger than {LARGEST:,} bytes")
    return content
