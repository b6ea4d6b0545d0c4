"""Pages as tests read them: how a template breaks its lines is no promise."""

from __future__ import annotations

import re
from typing import Any


def html(response: Any) -> str:
    """The page as a browser takes it: white space is one space, and none is at the ends of an element or a tag."""
    page = re.sub(r"\s+", " ", response.content.decode())
    return re.sub(r"(?<=>) (?=</)|(<[a-z][^<>]*>) | (?=</|>)", r"\1", page)
