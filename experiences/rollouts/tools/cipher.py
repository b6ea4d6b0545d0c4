"""Breaking a Caesar cipher: every shift is tried, the one that reads most like English wins."""

from __future__ import annotations

import math
import re

from experiences.rollouts.tools.base import FunctionTool, ToolError

# Relative frequency of letters in English prose, percent (Lewand, Cryptological Mathematics, 2000).
_PERCENT = {
    "E": 12.70, "T": 9.06, "A": 8.17, "O": 7.51, "I": 6.97, "N": 6.75, "S": 6.33, "H": 6.09, "R": 5.99,
    "D": 4.25, "L": 4.03, "C": 2.78, "U": 2.76, "M": 2.41, "W": 2.36, "F": 2.23, "G": 2.02, "Y": 1.97,
    "P": 1.93, "B": 1.49, "V": 0.98, "K": 0.77, "J": 0.15, "X": 0.15, "Q": 0.10, "Z": 0.07,
}  # fmt: skip
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOG_FREQUENCY = [math.log(_PERCENT[letter] / 100) for letter in _LETTERS]
_COMMON_WORDS = """
A I AM AN AS AT BE BY DO GO HE IF IN IS IT ME MY NO OF ON OR SO TO UP US WE ALL AND ANY ARE BUT CAN DID FOR GET HAD
HAS HER HIM HIS HOW ITS LET MAY NEW NOT NOW OFF OLD ONE OUR OUT OWN SEE SHE THE TOO TWO WAS WAY WHO YES YOU ALSO BEEN
EACH FROM HAVE INTO JUST LIKE MADE MANY MORE MOST MUCH MUST ONLY OVER SAID SAME SOME SUCH THAN THAT THEM THEN THEY
THIS TIME UPON VERY WELL WERE WHAT WHEN WILL WITH WORK YEAR YOUR ABOUT AFTER COULD EVERY FIRST GREAT OTHER SHALL THEIR
THERE THESE THOSE UNDER WHICH WHERE WHILE WORLD WOULD
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_COMMON_WORD_GAIN = 2.5  # nats for each letter of a common word: about what its rarity is worth
_CIPHER_TEXT = re.compile(r"(?<![\w])[A-Z]+(?: [A-Z]+){2,}(?![\w])")
_LONE_WORD = re.compile(r":\s*([A-Za-z]{2,})\W*$")
_SHIFTED = [str.maketrans(_LETTERS, _LETTERS[shift:] + _LETTERS[:shift]) for shift in range(26)]


def shift_decoder(text: str) -> str:
    """The longest run of capital words, or else the single word after the last colon, decoded; in capitals."""
    runs = _CIPHER_TEXT.findall(text) or _LONE_WORD.findall(text)
    if not runs:
        raise ToolError("no cipher text")
    cipher = max(runs, key=len).upper()
    counts = [cipher.count(letter) for letter in _LETTERS]
    return max((cipher.translate(table) for table in _by_letters(counts)), key=_plausibility)


def _by_letters(counts: list[int]) -> list[dict[int, int]]:
    """The eight shifts whose letters look most like English; the words decide among those."""

    def fit(shift: int) -> float:
        return sum(n * _LOG_FREQUENCY[(i + shift) % 26] for i, n in enumerate(counts) if n)

    return [_SHIFTED[shift] for shift in sorted(range(1, 26), key=fit, reverse=True)[:8]]


def _plausibility(clear: str) -> float:
    letters = sum(_LOG_FREQUENCY[ord(letter) - 65] for letter in clear if letter != " ")
    return letters + _COMMON_WORD_GAIN * sum(len(word) for word in clear.split() if word in _COMMON)


SHIFT_DECODER = FunctionTool("shift_decoder", "Decodes a text in capitals whose letters were shifted.", shift_decoder)
