"""A release as an Agent Skill: a folder with ``SKILL.md``, whose facts and texts are signed (agentskills.io).

``SKILL.md`` begins with front matter: ``name`` (at most 64 lower-case letters, digits and single hyphens),
``description`` (at most 1,024 characters) and ``metadata``, a map of texts to texts. ``signature.json`` has the SHA-256
of each file and an Ed25519 signature (RFC 8032) of these digests. A reader needs no account here to verify them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SKILL: Final = "SKILL.md"
CONTEXT: Final = "references/context.json"
SIGNATURE: Final = "signature.json"
FILES: Final = (SKILL, CONTEXT, SIGNATURE)
MOST_NAME: Final = 64
MOST_DESCRIPTION: Final = 1_024
MOST_BYTES: Final = 16 * 1024 * 1024  # of a file, unpacked
WRITTEN: Final = (1980, 1, 1, 0, 0, 0)  # date of files in the archive, so that equal skills are equal bytes


class SkillError(ValueError):
    """The file is no skill that can be verified here."""


@dataclass(frozen=True)
class Skill:
    """``prompt`` and ``lessons`` are the texts of a release, ``facts`` what is known of it, by name."""

    name: str
    description: str
    prompt: str
    lessons: Sequence[str]
    facts: Mapping[str, str]


@dataclass(frozen=True)
class VerifiedSkill:
    """A skill with the ``key`` that signed it, and the ``faults`` that were found; none: it is as it was signed."""

    skill: Skill | None
    key: str
    faults: tuple[str, ...]


def skill_name(text: str) -> str:
    """The name of a skill that is made of a text."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:MOST_NAME].strip("-") or "skill"


def one_line(text: str, most: int = MOST_DESCRIPTION) -> str:
    """The text on one line, without signs that can't be printed, cut to ``most`` characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:most]


def public_key(key: Ed25519PrivateKey) -> str:
    """The public half in base64, 44 characters."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def skill_archive(skill: Skill, key: Ed25519PrivateKey) -> bytes:
    """The signed folder as a zip file."""
    files = {SKILL: _document(skill).encode(), CONTEXT: _plain(_content(skill))}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    signed = {"name": skill.name, "files": digests}
    files[SIGNATURE] = _signature(signed, public_key(key), base64.b64encode(key.sign(_plain(signed))).decode())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(f"{skill.name}/{name}", WRITTEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return packed.getvalue()


def verified(data: bytes, trusted: str = "") -> VerifiedSkill:
    """Verifies an archive of ``skill_archive``. ``trusted`` is the public key that has to have signed it ("": any).

    Raises:
        SkillError: the archive can't be read as a skill of this program.
    """
    name, files = _unpacked(data)
    signature = _object(files[SIGNATURE], SIGNATURE)
    key, faults = str(signature.get("key", "")), []
    signed = {"name": signature.get("name"), "files": signature.get("files")}
    text = str(signature.get("signature", ""))
    if files[SIGNATURE] != _signature(signed, key, text) or not _signed(key, text, _plain(signed)):
        faults.append(f"{SIGNATURE} was changed, or is not of these digests.")
    if trusted and key != trusted:
        faults.append("Another key signed it.")
    digests = signed["files"] if isinstance(signed["files"], dict) else {}
    for path in (SKILL, CONTEXT):
        if digests.get(path) != hashlib.sha256(files[path]).hexdigest():
            faults.append(f"{path} was changed since it was signed.")
    if signed["name"] != name:
        faults.append("The folder was renamed since it was signed.")
    if faults:
        return VerifiedSkill(None, key, tuple(faults))
    return VerifiedSkill(_skill(name, _object(files[CONTEXT], CONTEXT)), key, ())


def _signature(signed: Mapping[str, Any], key: str, signature: str) -> bytes:
    return _plain({**signed, "algorithm": "Ed25519", "key": key, "signature": signature})


def _document(skill: Skill) -> str:
    """``SKILL.md``. JSON strings are YAML strings too, so that no text can end the front matter."""
    lines = ["---", f"name: {skill.name}", f"description: {_quoted(one_line(skill.description))}", "metadata:"]
    lines += [f"  {name}: {_quoted(one_line(value))}" for name, value in sorted(skill.facts.items())]
    lines += ["---", "", f"# {skill.name}"]
    if skill.prompt.strip():
        lines += ["", "## Instructions", "", skill.prompt.strip()]
    if skill.lessons:
        lines += ["", "## Lessons", "", *(f"- {one_line(text, len(text))}" for text in skill.lessons)]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _content(skill: Skill) -> dict[str, Any]:
    return {
        "format": 1,
        "description": skill.description,
        "prompt": skill.prompt,
        "lessons": list(skill.lessons),
        "facts": dict(skill.facts),
    }


def _skill(name: str, content: Mapping[str, Any]) -> Skill:
    try:
        if content["format"] != 1:
            raise SkillError(f"{CONTEXT} has format {content['format']}, which this release can't read.")
        lessons = [str(text) for text in content["lessons"]]
        facts = {str(fact): str(value) for fact, value in content["facts"].items()}
        return Skill(name, str(content["description"]), str(content["prompt"]), lessons, facts)
    except (KeyError, TypeError, AttributeError) as error:
        raise SkillError(f"{CONTEXT} lacks what a skill has: {error}") from error


def _plain(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes, path: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SkillError(f"{path} is no JSON.") from error
    if not isinstance(found, dict):
        raise SkillError(f"{path} is no JSON object.")
    return found


def _signed(key: str, signature: str, data: bytes) -> bool:
    try:
        halves = [base64.b64decode(text, validate=True) for text in (key, signature)]
        Ed25519PublicKey.from_public_bytes(halves[0]).verify(halves[1], data)
    except (InvalidSignature, ValueError):
        return False
    # Base64 has several texts for one value.
    return [base64.b64encode(half).decode() for half in halves] == [key, signature]


def _unpacked(data: bytes) -> tuple[str, dict[str, bytes]]:
    """(name of the folder, its files). No file is written, and no more is unpacked than a skill may have."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            names = sorted(entry.filename for entry in entries)
            folder = names[0].partition("/")[0] if names else ""
            if names != sorted(f"{folder}/{path}" for path in FILES):
                raise SkillError(f"A skill of this program is one folder with {', '.join(FILES)}.")
            if any(entry.file_size > MOST_BYTES for entry in entries):
                raise SkillError(f"A file of a skill has at most {MOST_BYTES // 2**20} MB.")
            files = {}
            for path in FILES:
                with archive.open(f"{folder}/{path}") as file:
                    files[path] = file.read(MOST_BYTES + 1)
    except SkillError:
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise SkillError(f"The file is no zip archive that can be read: {error}") from error
    if any(len(content) > MOST_BYTES for content in files.values()):
        raise SkillError(f"A file of a skill has at most {MOST_BYTES // 2**20} MB.")
    return folder, files
