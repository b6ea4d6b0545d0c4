"""Skills as they arrive: ours, which are signed, and any other folder with ``SKILL.md``. Nothing is run or written.

A file of bytes is a zip archive with one skill, or a ``SKILL.md`` alone. From an archive of others only ``SKILL.md`` is
unpacked; names, kinds and declared sizes of all members are checked before.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from agentcore_site.lib.storable import unstorable
from evaluation.serving.releases.skill import (
    FILES,
    MOST_BYTES,
    SIGNATURE,
    SKILL,
    SkillError,
    VerifiedSkill,
    one_line,
    skill_name,
    verified,
)

MOST_PACKED: Final = 4 * 2**20  # bytes of an upload
MOST_FILES: Final = 200
MOST_TEXT: Final = 2**20  # bytes of a SKILL.md that others wrote
MOST_FRONT: Final = 16_384  # characters of its front matter
VALID: Final = "valid"
CHANGED: Final = "changed"
UNSIGNED: Final = "unsigned"
_IGNORED: Final = ("__MACOSX/",)
_FRONT: Final = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_BULLET: Final = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(.*)")
_HEADING: Final = re.compile(r"\s{0,3}#{1,6}(?:\s|$)")
_RULE: Final = re.compile(r"\s*(?:[-*_]\s*){3,}$")
_FENCE: Final = re.compile(r"\s{0,3}(?:```|~~~)")


class SkillTooLarge(SkillError):
    """The file exceeds a limit."""


@dataclass(frozen=True)
class ReadSkill:
    """A skill as it was read. ``status``: "valid" (signed, and as it was signed), "changed" or "unsigned". ``faults``
    name what was changed; ``key`` is the public key that signed a valid one, in base64. ``lessons`` are texts that may
    become lessons, none of a changed skill. ``unread`` are further files, which are neither read nor imported."""

    status: str
    sha256: str
    name: str
    description: str = ""
    prompt: str = ""
    lessons: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    faults: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def fingerprint(key: str) -> str:
    """SHA-256 of a public key in base64, 64 hexadecimal digits; "" for what is no key."""
    try:
        raw = base64.b64decode(key, validate=True)
    except ValueError:
        return ""
    return hashlib.sha256(raw).hexdigest() if len(raw) == 32 else ""


def skill_read(data: bytes) -> ReadSkill:
    """Reads a skill and verifies its signature.

    Raises:
        SkillTooLarge: the file, one of its members, or their number exceeds a limit.
        SkillError: the bytes are no skill, or an archive with links, encrypted files or paths out of its folder.
    """
    if len(data) > MOST_PACKED:
        raise SkillTooLarge(f"A skill has at most {MOST_PACKED // 2**20} MB.")
    sha256 = hashlib.sha256(data).hexdigest()
    if not data.startswith(b"PK"):  # a zip at the end of something else is one to the library
        return _foreign(_front_of(data), "", sha256, ())
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive)
            place = _place(members)
            if f"{place}{SIGNATURE}" not in members:
                unread = tuple(sorted(name for name in members if name != f"{place}{SKILL}"))
                text = _front_of(archive.read(members[f"{place}{SKILL}"]))
                return _foreign(text, place.strip("/"), sha256, unread)
    except SkillError:
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise SkillError(f"The file is no zip archive that can be read: {error}") from error
    return _signed(data, place, members, sha256)


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files of an archive by path, without what systems add.

    Raises:
        SkillError: one of them is refused.
    """
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise SkillTooLarge(f"The archive has {len(entries):,} members; a skill has at most {MOST_FILES}.")
    if sum(entry.file_size for entry in entries) > MOST_BYTES:
        raise SkillTooLarge(f"The archive unpacks to more than {MOST_BYTES // 2**20} MB.")
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        if fault := _fault(entry) or ("is there twice" if entry.filename in found else ""):
            raise SkillError(f"{one_line(entry.orig_filename, 80)!r} {fault}.")
        if not entry.is_dir() and not entry.filename.startswith(_IGNORED):
            found[entry.filename] = entry
    return found


def _fault(entry: zipfile.ZipInfo) -> str:
    """Why a member of an archive is refused; "" if it is taken."""
    parts = entry.orig_filename.removesuffix("/").split("/")
    if any(part in ("", ".", "..") for part in parts) or re.search(r"[\\\0:]", entry.orig_filename):
        return "leads out of the skill's folder, or is no path"
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device; a skill has files and folders"
    return "is encrypted" if entry.flag_bits & 1 else ""


def _place(members: Mapping[str, zipfile.ZipInfo]) -> str:
    """The folder of the one ``SKILL.md``, with a slash at its end; "" for the root.

    Raises:
        SkillError: there is none, or more than one.
    """
    places = [name.removesuffix(SKILL) for name in members if name.rpartition("/")[2] == SKILL and name.count("/") < 2]
    if len(places) != 1:
        raise SkillError(f"A skill is one folder with {SKILL}; this archive has {len(places)} of them.")
    if members[f"{places[0]}{SKILL}"].file_size > MOST_TEXT:
        raise SkillTooLarge(f"{SKILL} has at most {MOST_TEXT // 2**20} MB.")
    return places[0]


def _signed(data: bytes, place: str, members: Mapping[str, zipfile.ZipInfo], sha256: str) -> ReadSkill:
    expected = {f"{place}{path}" for path in FILES}
    faults = [f"{name.removeprefix(place)} is missing." for name in sorted(expected - set(members))]
    faults += [f"{name.removeprefix(place)} was added." for name in sorted(set(members) - expected)]
    found = VerifiedSkill(None, "", tuple(faults)) if faults else verified(data)
    name = skill_name(place)
    if found.skill is None:
        return ReadSkill(CHANGED, sha256, name, faults=found.faults)
    skill = found.skill
    if fault := unstorable([skill.description, skill.prompt, skill.lessons, [*skill.facts.items()]]):
        raise SkillError(f"The skill has text that can't be stored: {fault}.")
    return ReadSkill(
        VALID, sha256, skill_name(skill.name), skill.description, skill.prompt, skill.lessons, skill.facts, found.key
    )


def _front_of(data: bytes) -> tuple[dict[str, Any], str]:
    """(front matter, body) of a ``SKILL.md``.

    Raises:
        SkillError: it has no front matter that can be read.
    """
    if len(data) > MOST_TEXT:
        raise SkillTooLarge(f"{SKILL} has at most {MOST_TEXT // 2**20} MB.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SkillError(f"{SKILL} is not UTF-8 text, and the file is no zip archive.") from error
    head = _FRONT.match(text)
    if head is None or len(head[1]) > MOST_FRONT:
        raise SkillError(f"{SKILL} begins with front matter: name and description between two lines of '---'.")
    try:
        front = yaml.safe_load(head[1])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SkillError(f"The front matter of {SKILL} is no YAML.") from error
    if not isinstance(front, dict):
        raise SkillError(f"The front matter of {SKILL} has no name and no description.")
    return front, text[head.end() :]


def _foreign(found: tuple[dict[str, Any], str], folder: str, sha256: str, unread: tuple[str, ...]) -> ReadSkill:
    front, body = found
    given = {key: front[key] for key in ("name", "description") if isinstance(front.get(key), str)}
    if not given.get("name", folder).strip():
        raise SkillError(f"The front matter of {SKILL} has no name.")
    return ReadSkill(
        UNSIGNED,
        sha256,
        skill_name(given.get("name", folder)),
        one_line(given.get("description", "")),
        lessons=candidates(body),
        unread=unread,
    )


def candidates(body: str) -> list[str]:
    """The pieces of a Markdown text that may be lessons: its list items and its paragraphs, each on one line. Headings,
    code and tables are left out."""
    pieces: list[list[str]] = []
    fresh = True  # whether the next line begins a piece
    code = False
    for line in body.splitlines():
        if _FENCE.match(line):
            code, fresh = not code, True
            continue
        bullet = _BULLET.match(line)
        plain = line.strip()
        if code or not plain or _HEADING.match(line) or _RULE.match(line) or plain.startswith("|"):
            fresh = True
        elif bullet or fresh:
            pieces.append([bullet[1] if bullet else plain])
            fresh = False
        else:
            pieces[-1].append(plain)
    texts = [" ".join(" ".join(piece).split()) for piece in pieces]
    return list(dict.fromkeys(text for text in texts if text))
