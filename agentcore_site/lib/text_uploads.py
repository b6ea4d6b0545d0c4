"""Text files from people: UTF-8, UTF-16, and JSON Lines, refused with the number of the line that is wrong."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any, Final

from agentcore_site.lib.errors import Invalid

NAMED: Final = 5  # lines that are wrong, at most


_MARKS: Final = (  # UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
SAVE: Final = 'Save it as UTF-8 (in Excel "CSV UTF-8", in an editor "Save with encoding").'


def file_text(content: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 or UTF-32 where a mark or zero bytes say so. No other is certain.

    Raises:
        Invalid: it is none of them; the message quotes the line and says how to save the file.
    """
    marked = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    encoding = marked or _by_zeros(content) or "utf-8"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding not in ("utf-8", "utf-8-sig"):
            raise refused(f"The file is not UTF-8, and as {encoding.upper()} it is damaged. {SAVE}") from error
        line = content[: error.start].count(b"\n") + 1
        around = content[max(content.rfind(b"\n", 0, error.start) + 1, error.start - 20) : error.start + 20]
        quoted = around.split(b"\n")[0].decode("cp1252", "replace").strip()
        western = f' If "{quoted}" is right, it is in Windows\' Western encoding.' if quoted.isprintable() else ""
        raise refused(f"The file is not UTF-8 text (byte {error.start}, line {line}).{western} {SAVE}") from error


def _by_zeros(content: bytes) -> str | None:
    """UTF-16 without a mark: its first two characters are ASCII, so each has a zero byte."""
    head = "".join("0" if byte == 0 else "x" for byte in content[:4])
    return {"x0x0": "utf-16-le", "0x0x": "utf-16-be"}.get(head)


def jsonl_rows(text: str, *, like: str, fault: Callable[[Any], str | None] = lambda _: None) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file, without empty lines. ``like`` is an example for the message. ``fault`` returns
    an object's fault: it is called for all lines, so that one message reports all faults.

    Raises:
        Invalid: a line is not a JSON object; the first few wrong lines are named.
    """
    rows, lines, wrong = [], [], []
    if "\n" not in text:
        text = text.replace("\r", "\n")
    for number, line in enumerate(text.split("\n"), start=1):  # other characters that end lines may be in its texts
        if not line.strip():
            continue
        row, problem = _object(line, like)
        if problem:
            wrong.append((number, problem))
        else:
            rows.append(row)
            lines.append(number)
    if wrong:
        wrong += [(number, f": {message}") for number, row in zip(lines, rows, strict=True) if (message := fault(row))]
        named = [f"Line {number}{message}" for number, message in sorted(wrong)[:NAMED]]
        more = f" {len(wrong) - NAMED:,} more lines are wrong." if len(wrong) > NAMED else ""
        raise refused(" ".join(named) + more)
    return rows


def _object(line: str, like: str) -> tuple[Any, str]:
    """The object of a line, or what is wrong with it."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return None, f" is not JSON from its character {error.colno} on; write {like}."
    except (ValueError, RecursionError):  # a number without end, or brackets within brackets
        return None, f" is not JSON that can be read; write {like}."
    return (row, "") if isinstance(row, dict) else (None, f" must be an object like {like}.")


def refused(message: str) -> Invalid:
    return Invalid(message, fields={"data": message})
