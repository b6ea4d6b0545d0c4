"""The workbench: every task can be solved, and only by what is right."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from experiences.rollouts.environments import environments
from experiences.rollouts.environments.base import EquippedEpisode, TextEpisode
from experiences.rollouts.environments.workbench.base import FAMILIES
from experiences.rollouts.environments.workbench.coding import _selected
from experiences.rollouts.environments.workbench.environment import WorkbenchEnvironment, WorkEpisode
from experiences.rollouts.types import Scenario

MANY = 25


def made(*families: str) -> WorkbenchEnvironment:
    environment: Any = environments.get("workbench")({"families": list(families)} if families else {})
    assert isinstance(environment, WorkbenchEnvironment)
    return environment


def tasks(family: str, n: int = MANY) -> list[tuple[Scenario, WorkEpisode]]:
    environment = made(family)
    rng = np.random.default_rng(0)
    return [(one, environment.start(one, rng)) for one in environment.scenarios("held_out", n, 3)]


async def right(episode: WorkEpisode, answer: str) -> bool:
    await episode.say(f"Let me think.\nAnswer: {answer}")
    return episode.outcome().success


def test_splits_share_no_text_and_a_longer_one_begins_like_a_shorter_one() -> None:
    environment = made()
    splits = {name: environment.scenarios(name, 90, 5) for name in ("train", "selection", "held_out")}
    texts = [one.query for split in splits.values() for one in split]
    assert len(set(texts)) == len(texts) == 270
    assert environment.scenarios("train", 30, 5) == splits["train"][:30]
    assert {one.metadata["category"] for one in splits["train"]} == {"coding", "analysis", "research", "tool-use"}
    assert environment.scenarios("train", 30, 6) != splits["train"][:30]


@pytest.mark.parametrize(
    ("options", "why"), [({"families": []}, "must be a list"), ({"families": ["x"]}, "no family 'x'")]
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        environments.get("workbench")(options)


async def test_programs_print_what_is_expected() -> None:
    for scenario, episode in tasks("read_program"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(scenario.query.partition("\n\n")[2], {})
        assert await right(episode, printed.getvalue().strip())


@pytest.mark.parametrize(
    "family", ["write_regex", "write_sql", "table_figure", "table_extreme", "archive_fact", "sources_disagree"]
)
async def test_the_expected_answer_is_right_and_others_are_not(family: str) -> None:
    for scenario, episode in tasks(family):
        expected = str(episode.outcome().evidence["expected"])
        assert await right(episode, expected), scenario.query
        for wrong in ("", "42424242", "SELECT 1", ".*", "D000, 1800"):
            assert not await right(episode, wrong), (scenario.query, wrong)


async def test_a_query_that_only_fits_the_shown_rows_is_wrong() -> None:
    for _, episode in tasks("write_sql", 5):
        expected = str(episode.outcome().evidence["expected"])
        assert not await right(episode, f"{expected} LIMIT 1")
        assert await right(episode, f"```sql\n{expected}\n```")


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE orders",
        "ATTACH 'x.db' AS x",
        "PRAGMA user_version",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "SELECT zeroblob(1000000000)",
        "SELECT 1; SELECT 2",
        "SELECT " + "1," * 4000 + "1",
    ],
)
def test_a_query_can_read_one_table_and_no_more(query: str) -> None:
    import sqlite3

    with pytest.raises((sqlite3.Error, sqlite3.Warning, ValueError)):
        _selected(query, [("a", "b", 2024, 1)])


# -- tools -------------------------------------------------------------------------------------------------------------

Call = Callable[..., Awaitable[str]]


def caller(episode: Any) -> Call:
    tools = {one.spec.name: one for one in episode.tools}

    async def call(name: str, **arguments: str) -> str:
        result = await tools[name].run(arguments)
        return result.output if result.ok else f"error: {result.error}"

    return call


async def test_an_archive_is_searched_read_and_its_correction_believed() -> None:
    corrected = 0
    for scenario, episode in tasks("archive_fact"):
        call, town = caller(episode), re.search(r"lives in (\w+)", scenario.query)[1]  # type: ignore[index]
        notes = {}
        for word in (f"lives {town}", "founded", "head", "Correction"):
            for key in re.findall(r"D\d{3}", await call("search_archive", text=word)):
                notes[key] = await call("read_document", document=key)
        head = next(note.split()[0] for note in notes.values() if f"lives in {town}" in note)
        matches = re.findall(r"D\d{3}", await call("search_archive", text=f"The head of {head}"))
        notes |= {key: await call("read_document", document=key) for key in matches}
        firm = next(note.split()[3] for note in notes.values() if f"is {head}," in note)
        matches = re.findall(r"D\d{3}", await call("search_archive", text=f"{firm} founded register shows Correction"))
        notes |= {key: await call("read_document", document=key) for key in matches}
        about = {key: note for key, note in notes.items() if f"{firm} was founded" in note}
        fixed = {key: note for key, note in about.items() if note.startswith("Correction")}
        key, note = next(iter((fixed or about).items()))
        year = re.search(r"founded in (\d{4})", note)[1]  # type: ignore[index]
        assert await right(episode, f"{year}, {key}")
        corrected += bool(fixed)
        if fixed:
            first = next(one for one in about if one not in fixed)
            assert not await right(episode, f"{int(year) + 7}, {first}")
    assert 0 < corrected < MANY
    assert "no document" in await call("read_document", document="D1")


async def test_a_desk_is_right_when_all_was_done_and_nothing_else() -> None:
    for scenario, episode in tasks("order_desk"):
        call = caller(episode)
        who, town, limit = re.match(r"(\w+) has moved to (\w+)\. .* than (\d+) euros", scenario.query).groups()  # type: ignore[union-attr]
        gone, any_open = 0, ""
        for order in (await call("find_orders", customer=who)).split(", "):
            shown = await call("show_order", order=order)
            if "open" not in shown:
                assert "can't be cancelled" in await call("cancel_order", order=order)
            elif int(re.search(r"(\d+) euros", shown)[1]) > int(limit):  # type: ignore[index]
                gone += "cancelled" in await call("cancel_order", order=order)
            else:
                any_open = order
                await call("change_town", order=order, town=town)
        assert await right(episode, str(gone))
        assert not await right(episode, str(gone + 1))
        if any_open:
            await call("change_town", order=any_open, town="Elsewhere")
            assert not await right(episode, str(gone))


async def test_a_meeting_is_booked_once_at_the_first_free_time() -> None:
    for scenario, episode in tasks("calendar_desk"):
        call = caller(episode)
        minutes, a, b = re.search(r"of (\d+) minutes for (\w+) and (\w+)", scenario.query).groups()  # type: ignore[union-attr]
        busy = [
            tuple(map(minute, part.split("-")))
            for who in (a, b)
            for part in (await call("read_calendar", person=who)).split(", ")
        ]
        length = int(minutes)
        start = next(
            at
            for at in range(540, 1020 - length + 1)
            if all(at + length <= began or at >= ended for began, ended in busy)
        )
        assert not await right(episode, clock(start)), "nothing was booked yet"
        await call("book_meeting", first=a, second=b, start=clock(start), end=clock(start + length))
        assert await right(episode, clock(start))
        await call("book_meeting", first=a, second=b, start=clock(start), end=clock(start + length))
        assert not await right(episode, clock(start)), "twice"


def minute(text: str) -> int:
    return int(text[:2]) * 60 + int(text[3:])


def clock(at: int) -> str:
    return f"{at // 60:02d}:{at % 60:02d}"


def test_tools_are_those_of_the_task_where_the_task_has_some() -> None:
    for name, family in FAMILIES.found.items():
        _, episode = tasks(name, 1)[0]
        assert isinstance(episode, TextEpisode) and isinstance(episode, EquippedEpisode) is family.uses_tools, name
