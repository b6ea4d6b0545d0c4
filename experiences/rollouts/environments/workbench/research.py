"""Research: a fact that has to be put together from an archive, with the document that says it."""

from __future__ import annotations

import random
import re
from typing import Final

from experiences.rollouts.environments.workbench.base import FAMILIES, NAMES, TOWNS, Verdict, WorkTask, WorkTool

FIRMS: Final = (
    "Aldermill", "Brightwater", "Corvane", "Drumlin", "Eastlock", "Fernhall", "Glasswing", "Harrowby", "Ironbridge",
    "Juniper", "Kestrel", "Larkfield",
)  # fmt: skip
MOST_HITS: Final = 5


@FAMILIES.register(
    "research", "A fact in two steps from an archive of notes, some of them corrected later.", uses_tools=True
)
def archive_fact(rng: random.Random) -> WorkTask:
    firms, heads, towns = rng.sample(FIRMS, 7), rng.sample(NAMES, 7), rng.sample(TOWNS, 7)
    years = [rng.randint(1890, 1990) for _ in firms]
    numbers = rng.sample(range(100, 1000), 4 * len(firms))
    archive: dict[str, str] = {}
    decisive: dict[str, str] = {}
    for i, firm in enumerate(firms):
        corrected = i % 2 == 0
        first, person, seat, later = (f"D{n}" for n in numbers[4 * i : 4 * i + 4])
        archive[first] = f"{firm} was founded in {years[i] + (7 if corrected else 0)} and makes measuring instruments."
        archive[person] = f"The head of {firm} is {heads[i]}, who came there after years at sea."
        archive[seat] = f"{heads[i]} lives in {towns[i]} and keeps bees."
        decisive[firm] = first
        if corrected:
            archive[later] = f"Correction of {first}: {firm} was founded in {years[i]}, as its register shows."
            decisive[firm] = later
    target, shelf = rng.randrange(len(firms)), rng.randint(1000, 9999)
    firm, document = firms[target], decisive[firms[target]]
    question = (
        f"In which year was the firm founded whose head lives in {towns[target]}? Search archive {shelf}."
        f" Later corrections"
        " count. Answer with the year and the number of the document that says it, as in: 1923, D100."
    )

    def search(text: str) -> str:
        words = set(re.findall(r"\w{3,}", text.casefold()))
        scored = {key: len(words & set(re.findall(r"\w{3,}", note.casefold()))) for key, note in archive.items()}
        hits = sorted((key for key, n in scored.items() if n), key=lambda key: (-scored[key], key))[:MOST_HITS]
        return "\n".join(f"{key}: {archive[key][:40]}…" for key in hits) or "nothing found"

    def read(document: str) -> str:
        if document.upper() not in archive:
            raise ValueError(f"there is no document {document[:20]!r}")
        return archive[document.upper()]

    def check(answer: str) -> Verdict:
        if str(years[target]) not in re.findall(r"\b\d{4}\b", answer):
            return False, f"expected {years[target]}, as {document} says of {firm}"
        named = re.findall(r"\bD\d{3}\b", answer.upper())
        return named == [document], "" if named == [document] else f"expected {document} as the document that says it"

    tools = [
        WorkTool("search_archive", "Searches the archive for words.", {"text": "words to search for"}, search),
        WorkTool("read_document", "Reads a document of the archive.", {"document": "its number, as in D100"}, read),
    ]
    return WorkTask(question, f"{years[target]}, {document}", check, tools)


@FAMILIES.register("research", "Which of two reports is right, by the sources that they name.")
def sources_disagree(rng: random.Random) -> WorkTask:
    place, right, wrong = rng.choice(TOWNS), rng.randint(200, 900), 0
    while wrong in (0, right):
        wrong = rng.randint(200, 900)
    a, b, c = rng.sample(NAMES, 3)
    notes = [
        f"Note 1. {a} counted {right} boats in the harbour of {place} on 4 May, from the pier, and signed the list.",
        f"Note 2. {b} writes that {place} had {wrong} boats on 4 May; {b} was abroad in May and quotes a guess of {c}.",
        f"Note 3. {c} says: I have never been to {place}, I only said a number to end the talk.",
        f"Note 4. On 5 May ten boats left {place}, and {rng.randint(2, 9)} came.",
    ]
    question = (
        "\n".join(rng.sample(notes, len(notes)))
        + f"\n\nHow many boats were in {place} on 4 May, by the better source? Answer with the number and the note, as"
        " in: 100, note 4."
    )

    def check(answer: str) -> Verdict:
        numbers = re.findall(r"\d+", answer)
        good = numbers == [str(right), "1"]
        return good, "" if good else f"expected {right}, note 1"

    return WorkTask(question, f"{right}, note 1", check)
