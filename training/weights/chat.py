"""Between chat completions and tokens: a model's own template, and the calls of tools that it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from training.weights.engine import BadInput

_CALL: Final = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)  # as Qwen, Hermes and others write it


class ChatTokens:
    """The tokenizer in a model's folder. Nothing is fetched."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not self._tokenizer.chat_template:
            raise BadInput(f"The tokenizer in {folder} has no chat template.")

    def prompt(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> tuple[int, ...]:
        """The ids after which the model's answer begins.

        Raises:
            BadInput: the template refuses these messages.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                [_as_dict(one) for one in messages], tools=tools or None, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # templates raise what they like
            raise BadInput(f"The chat template refuses these messages: {error}") from error
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def message(self, ids: Sequence[int], stop: Sequence[str] = ()) -> dict[str, Any]:
        """The answer as a chat message, with its calls of tools where it wrote any, up to a text of ``stop``."""
        text = self.text(ids)
        text = text[: min([len(text), *(at for one in stop if (at := text.find(one)) >= 0)])]
        calls = [_call(number, found) for number, found in enumerate(_CALL.findall(text))]
        if not calls:
            return {"role": "assistant", "content": text}
        return {"role": "assistant", "content": _CALL.sub("", text).strip(), "tool_calls": calls}

    def token(self, id: int) -> str:
        return str(self._tokenizer.decode([id]))

    def text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def _call(number: int, written: str) -> dict[str, Any]:
    """A call; what is no JSON goes through as it is, for the client to say so."""
    name, arguments = "", written
    try:
        found = json.loads(written)
        name, arguments = str(found.get("name", "")), json.dumps(found.get("arguments", {}))
    except (ValueError, AttributeError):
        pass
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _as_dict(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates want it: text for content, arguments as an object."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    plain = {**message, "content": content or ""}
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = [{**call, "function": _opened(call["function"])} for call in calls]
    return plain


def _opened(function: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {**function, "arguments": json.loads(function["arguments"])}
    except (KeyError, TypeError, ValueError):
        return dict(function)
