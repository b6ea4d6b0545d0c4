"""Calls of tools that a model wrote as text, because its server does not read them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from budgets.llm.types import Completion

WRITTEN: Final = re.compile(
    r"</?tool_calls?>|<\|tool_call|\[TOOL_CALLS\]|<function=\w|<\|python_tag\|>|<｜tool▁calls?▁begin｜>|<function_calls>"
    r"|<invoke name=|```tool_code"
    r"|^\s*(?:```json\s*)?\{\s*\"name\"\s*:\s*\"[\w.-]+\"\s*,\s*\"(?:arguments|parameters)\"",
    re.MULTILINE,
)
HINT: Final = (
    "A call of a tool came as text, so that no tool was run: the model's server lacks the parser of the model's calls"
    " (vLLM: --enable-auto-tool-choice --tool-call-parser; SGLang: --tool-call-parser; llama.cpp: --jinja)."
)


def with_hint(answer: Completion) -> Completion:
    """An answer to a request with tools; a call in its text is noted."""
    if answer.tool_calls or not WRITTEN.search(answer.text):
        return answer
    return replace(answer, notes=(*answer.notes, HINT))
