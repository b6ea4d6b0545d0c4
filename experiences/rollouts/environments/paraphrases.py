"""Our own wordings of reasoning-gym's questions: same items, same verifiers, other words.

For each family the first three may be trained on (``wording="mixed"``), the last two are only ever asked on the
evaluation line "unseen_wording".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from experiences.rollouts.tools.dates import MONTHS, free_weekday

N_TRAINED = 3
N_UNSEEN = 2

TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "chain_sum": (
        "Work out {expression}.",
        "What does {expression} come to?",
        "Add and subtract from left to right: {expression}",
        "Please evaluate {expression} for me.",
        "I have written {expression} on the board; what is it worth?",
    ),
    "decimal_chain_sum": (
        "Work out {expression}.",
        "What does {expression} come to?",
        "Add and subtract from left to right: {expression}",
        "Please evaluate {expression} for me.",
        "I have written {expression} on the board; what is it worth?",
    ),
    "gcd": (
        "What is the largest integer that divides all of {numbers}?",
        "Give the highest common factor of {numbers}.",
        "Which is the greatest divisor shared by {numbers}?",
        "Determine the biggest whole number dividing each of {numbers} evenly.",
        "Tell me the greatest measure common to {numbers}.",
    ),
    "lcm": (
        "What is the smallest positive integer that is a multiple of all of {numbers}?",
        "Give the lowest common multiple of {numbers}.",
        "Which least number do {numbers} all divide?",
        "Determine the first value at which the multiples of {numbers} meet.",
        "Tell me the smallest number into which {numbers} all go without remainder.",
    ),
    "prime_factorization": (
        "Write {number} as a product of primes, joined by ×.",
        "Break {number} down into its prime factors and join them with ×.",
        "Which primes multiply to {number}? Join them with ×.",
        "Split {number} completely into primes; put × between them.",
        "Decompose {number} into irreducible parts, with × in between.",
    ),
    "fraction_simplification": (
        "Reduce {fraction} as far as possible.",
        "Write {fraction} with the smallest possible numerator and denominator.",
        "Cancel the common factors of {fraction}.",
        "Bring {fraction} into its simplest form.",
        "How does {fraction} look once nothing more cancels?",
    ),
    "base_conversion": (
        "Write the {source} number {value} in {target}.",
        "Change {value} from {source} to {target}. Use lowercase letters for digits above nine.",
        "Express the {source} numeral {value} as {target}.",
        "{value} is given in {source}; rewrite it in {target}.",
        "How is the {source} value {value} written in {target}?",
    ),
    "bitwise_arithmetic": (
        "Compute with hexadecimal numbers: {problem}",
        "Evaluate {problem} where >> and << are shifts. Signed integers, any length.",
        "What is the hexadecimal result of {problem} ?",
        "A programmer typed {problem} into a console. What came back?",
        "Find the value, in hex, of {problem}",
    ),
    "leg_counting": (
        "How many legs do {animals} have together?",
        "On a farm there are {animals}. Count all their legs.",
        "Count the legs: {animals}.",
        "If {animals} walk by, on how many legs in all do they walk?",
        "Sum up the limbs used for walking of {animals}.",
    ),
    "spell_backward": (
        "Reverse the letters of this word: {word}",
        "Write the word from its last letter to its first: {word}",
        "Read this word from right to left: {word}",
        "How does this look in a mirror, letter by letter: {word}",
        "Turn the following around, last character first: {word}",
    ),
    "letter_counting": (
        'Count the letter "{letter}" in "{text}".',
        'How often does "{letter}" occur in "{text}"?',
        'In the text "{text}", how many times is the letter "{letter}" used?',
        'Give the number of occurrences of "{letter}" within "{text}".',
        'Go through "{text}" and tally each "{letter}".',
    ),
    "word_sorting": (
        "Put these words into {direction} order: {words}",
        "Arrange in {direction} Unicode order, separated by commas: {words}",
        "List the following words in {direction} alphabetical order: {words}",
        "Bring this vocabulary into {direction} sequence, capitals first as computers do: {words}",
        "Order by character code, {direction}: {words}",
    ),
    "number_sorting": (
        "Put these numbers into {direction} order, as a list of strings: {numbers}",
        "Arrange in {direction} order and give a list of strings: {numbers}",
        "List the following values in {direction} order, each as a string in square brackets: {numbers}",
        "Bring these figures into {direction} sequence (a list of strings): {numbers}",
        "Rank by size, {direction}, as a list of quoted numbers: {numbers}",
    ),
    "simple_equations": (
        "For which {variable} does this hold: {equation}",
        "What is {variable} if {equation}",
        "Given that {equation} , compute {variable}.",
        "Isolate the unknown and state it: {equation}",
        "Which number must stand for {variable} to make this true: {equation}",
    ),
    "caesar_cipher": (
        "All letters of this message were shifted by the same amount. Read it: {cipher}",
        "Undo the Caesar shift: {cipher}",
        "This was encrypted by rotating the alphabet: {cipher} . What does it say?",
        "Recover the plain message behind: {cipher}",
        "A spy moved every letter along. Make sense of: {cipher}",
    ),
    "calendar_arithmetic": (
        "Answer from the calendar: {trained}",
        "Look it up: {trained}",
        "A calendar question. {trained}",
        "{unseen}",
        "Without much ado: {unseen}",
    ),
}


def reworded(family: str, question: str, metadata: Mapping[str, Any], variant: int) -> str:
    """The item in our wording number ``variant`` (0-2 for training, 3-4 unseen).

    Raises:
        KeyError: there are no wordings for this family.
    """
    return TEMPLATES[family][variant].format(**_FIELDS.get(family, _plain_fields)(question, metadata))


Fields = Callable[[str, Mapping[str, Any]], dict[str, str]]


def _plain_fields(question: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in metadata.items()}


def _joined(key: str, name: str) -> Fields:
    def fields(question: str, metadata: Mapping[str, Any]) -> dict[str, str]:
        return {name: ", ".join(map(str, metadata[key])), "direction": str(metadata.get("direction", ""))}

    return fields


def _fraction(question: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    top, bottom = metadata["numerator"], metadata["denominator"]
    latex = {"latex_frac": "$\\frac{%s}{%s}$", "latex_dfrac": "$\\dfrac{%s}{%s}$", "latex_inline": "$%s/%s$"}
    return {"fraction": latex.get(metadata["style"], "%s/%s") % (top, bottom)}


def _bases(question: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    names = {2: "binary", 16: "hexadecimal"}
    source, target = (names.get(base, f"base-{base}") for base in (metadata["source_base"], metadata["target_base"]))
    return {"source": source, "target": target, "value": metadata["source_repr"]}


def _calendar(question: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    trained, unseen = _CALENDAR[metadata["task"]]
    fields = {name: str(value) for name, value in metadata.items()}
    for name in ("start_date", "end_date", "target_date"):
        if name in metadata:
            fields[name] = _long(date.fromisoformat(metadata[name]))
    if "target_date" in metadata:
        fields["month_day"] = fields["target_date"].rpartition(", ")[0]
    if "month" in metadata:
        fields["month_name"] = MONTHS[metadata["month"] - 1]
    if metadata["task"] == "count_days":
        fields["weekday"] = free_weekday(question)  # the generator's metadata leaves it out
    days = metadata.get("offset_days", 0)
    fields["days"] = str(abs(days))
    fields["way"], fields["when"] = ("after", "ahead") if days > 0 else ("before", "earlier")
    return {"trained": trained.format(**fields), "unseen": unseen.format(**fields)}


_CALENDAR: Mapping[str, tuple[str, str]] = {
    "weekday_offset": (
        "which weekday lies {days} days {way} {start_date}?",
        "From {start_date} we move {days} days {when}. What is the name of that weekday?",
    ),
    "weekday_of_date": ("which weekday is {target_date}?", "{target_date}: a Monday, or which other weekday?"),
    "weekday_of_date_from_first_date": (
        "the first day of the year is a {first_day}; which weekday is {month_day}?",
        "January 1 being a {first_day}, what do we call the day {month_day}?",
    ),
    "recurring_event_day": (
        "what day of the month is the {ordinal} {weekday} of {month_name} {year}? A number, or -1 if there is none.",
        "We meet on the {ordinal} {weekday} in {month_name} {year}. State the number of that day in its month.",
    ),
    "count_days": (
        "how many of the days from {start_date} to {end_date}, both included, are a {weekday}?",
        "{start_date} until {end_date} inclusive: the number of times a {weekday} comes by?",
    ),
    "count_business_days": (
        "how many business days are there from {start_date} to {end_date}, both included?",
        "{start_date} until {end_date} inclusive: the number of working days?",
    ),
    "is_leap_year": ("is {year} a leap year? Yes or No.", "Does the year {year} have a leap day? Yes or No."),
}


def _long(day: date) -> str:
    return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"


_FIELDS: Mapping[str, Fields] = {
    "gcd": _joined("numbers", "numbers"),
    "lcm": _joined("numbers", "numbers"),
    "word_sorting": _joined("transformed_words", "words"),
    "number_sorting": _joined("original_numbers", "numbers"),
    "fraction_simplification": _fraction,
    "base_conversion": _bases,
    "leg_counting": lambda _, metadata: {
        "animals": ", ".join(f"{n} {name}{'s' * (n > 1)}" for name, n in metadata["animals"].items())
    },
    "letter_counting": lambda _, metadata: {"letter": metadata["target_letter"], "text": " ".join(metadata["span"])},
    "caesar_cipher": lambda _, metadata: {"cipher": metadata["cipher_text"]},
    "calendar_arithmetic": _calendar,
}
