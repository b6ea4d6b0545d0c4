"""Thoughts that a model writes in front of its answer: taken off before a scorer, a judge or a reader sees the text."""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = r"(?:think|thinking|thoughts?|reasoning|seed:think|scratchpad|analysis|reflection)"
# <think> of DeepSeek, Qwen and others; ◁think▷ of Kimi; [THINK] of Magistral; <|START_THINKING|> of Cohere. A tag in
# code quotes is a word.
_TAG: Final = re.compile(
    rf"(?<!`)(?:<(?P<end>/?)\s*{_NAMES}\b[^<>]{{0,100}}>|◁(?P<end2>/?)think▷|\[(?P<end3>/?)(?-i:THINK)\]"
    r"|<\|(?:(?P<end4>END)|START)_THINKING\|>)",
    re.IGNORECASE,
)
# Channels of gpt-oss: analysis and commentary are thoughts, final is the answer.
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)[^<]{0,100}<\|message\|>")
_RESPONSE: Final = re.compile(r"<\|(?:START|END)_RESPONSE\|>")
_ENDED: Final = re.compile(r"<\|(?:end|return|start)\|>")


def without_thoughts(text: str) -> str:
    """The text behind the thoughts, "" where they ran out before an answer; the text itself where there are none.

    A closing tag alone closes thoughts whose opening tag stood in the prompt. An opening tag alone counts at the start
    of a line: elsewhere it is a word of the answer.
    """
    if "<|channel|>" in text:
        text = _final_channel(text)
    tags = list(_TAG.finditer(text)) if any(mark in text for mark in "<◁[") else []
    if not tags:
        return text
    kept, at, opened = "", 0, None
    for tag in tags:
        closes = bool(tag["end"] or tag["end2"] or tag["end3"] or tag["end4"])
        if closes:
            kept = "" if opened is None else kept
            at, opened = tag.end(), None
        elif opened is None:
            kept, opened = kept + text[at : tag.start()], tag
    if opened is not None and not _starts_line(text, opened.start()):
        at = opened.start()
    elif opened is not None:
        return kept.strip()
    return _RESPONSE.sub("", kept + text[at:]).strip()


def thoughts_ran_out(text: str) -> bool:
    """Whether the text is thoughts and nothing else."""
    return bool(text.strip()) and not without_thoughts(text).strip()


def _final_channel(text: str) -> str:
    channels = list(_CHANNEL.finditer(text))
    final = [channel for channel in channels if channel[1] == "final"]
    return _ENDED.split(text[final[-1].end() :])[0].strip() if final else "" if channels else text


def _starts_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()
