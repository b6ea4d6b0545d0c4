"""Upper bound of a prompt's tokens, and an estimate for any text.

The bound: a byte-level BPE tokenizer (OpenAI's, Llama 3's, Qwen's, Mistral's Tekken, DeepSeek's) first has one token
per byte and then only merges, so that a text has at most as many tokens as UTF-8 bytes. SentencePiece with byte
fallback has at most one token per known character, one per byte of an unknown one, and one more for
the space that it puts in front. Some tokenizers normalise first (Qwen: NFC), which can make a text longer: the bound
is taken over the text and both composed forms of it. Around the texts a chat template writes special tokens per
message and per call, and a preamble where there are tools; the constants below are above those of the templates that
we know, and ``Endpoint.prompt_overhead`` is for those that we don't. Counting the *serialised* request instead of the
bare texts leaves room besides: quotes, names of fields and escapes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from budgets.pricing import Usage

PER_CALL: Final = 96  # template preamble: begin of text, date and default system lines, the assistant's opening
PER_MESSAGE: Final = 16  # begin, role, separators, end, the space in front
PER_TOOL: Final = 32
WITH_TOOLS: Final = 768  # the instruction by which providers explain tool use; the longest documented is near 530
BYTES_PER_TOKEN: Final = 4.0
# More than any model that we know counts for one image. The highest is gpt-4o-mini's: 2,833 for an image and 5,667 for
# each of at most 8 tiles, 48,169 together. Others count up to 1,445 (gpt-4o), 4,784 (Claude) or 2,240 (Gemini 3).
IMAGE_BOUND: Final = 50_000
IMAGE_USUAL: Final = 1_500  # of an image of about a megapixel, where no service says it


def upper_bytes(text: str) -> int:
    """The most UTF-8 bytes that ``text`` has, as it is or normalised to NFC or NFKC."""
    if text.isascii():
        return len(text)
    forms = (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFKC", text))
    return max(len(form.encode("utf-8", "surrogatepass")) for form in forms)


def prompt_bound(serialised: str, *, messages: int, tools: int, overhead: int = 0) -> int:
    """An upper bound of the prompt's tokens; ``serialised`` is the JSON of messages, tools and response format."""
    preamble = WITH_TOOLS + PER_TOOL * tools if tools else 0
    return upper_bytes(serialised) + PER_CALL + PER_MESSAGE * messages + preamble + overhead


def most_of(size: int) -> int:
    """More tokens than nearly any text of ``size`` UTF-8 bytes has: prose of Latin letters has four bytes a token,
    code and Chinese about three."""
    return -(-size // 3)


def least_of(texts: Iterable[str]) -> int:
    """Fewer tokens than nearly any tokenizer makes of these texts: no token crosses a space between words."""
    return sum(len(text.split()) for text in texts) // 2


def middle(text: str) -> int:
    """About as many tokens as ``text`` has: a quarter of its bytes, at least one per non-empty text.

    Bytes and not characters: English has about four of either per token, Chinese about three bytes to a character
    and a token each.
    """
    return -int(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def estimate(prompt: str, answer: str, images: int = 0) -> Usage:
    """Usage where the provider reports none, marked as estimated."""
    return Usage(input_tokens=middle(prompt) + IMAGE_USUAL * images, output_tokens=middle(answer), estimated=True)
