"""The columns of a list, as a person chose them in a browser."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from agentcore_site.console.columns import LISTS, ListColumns
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent
from tests.factories import ExperienceFactory
from tests.support.loops import judged
from tests.support.pages import html
from tests.support.rows import queued_run

pytestmark = pytest.mark.django_db


def cells(page: str) -> tuple[int, int]:
    """The numbers of heads and of cells of the first row."""
    head, row = re.findall(r"<thead>.*?</thead>", page)[0], re.findall(r"<tr data-row.*?</tr>", page)[0]
    return len(re.findall("<th[ >]", head)), len(re.findall("<td[ >]", row))


@pytest.mark.parametrize("of", LISTS.values(), ids=LISTS)
def test_each_column_goes_with_its_head_and_comes_back(
    of: ListColumns, console: Client, operator: Actor, agent: Agent
) -> None:
    queued_run(operator, agent)
    ExperienceFactory(agent=agent)
    ExperienceFactory(agent=agent)
    dataset_create(operator, name="sums", rows=[{"query": "What is 1 + 1?", "expected_outcome": "2"}])
    judged(agent, [("What is 1 + 1?", "2")])
    address = reverse(of.page)
    before = html(console.get(address))
    heads, row = cells(before)
    assert heads == row and "Columns of this list" in before
    for key, title in of.names.items():
        kept = [one for one in of.names if one != key]
        answer = console.post("/columns/", {"list": of.key, "column": kept, "next": address})
        assert answer["Location"] == address
        shown = html(console.get(address))
        assert cells(shown) == (heads - 1, heads - 1), title
        assert f'data-label="{title}"' not in shown and f'data-label="{title}"' in before
    console.post("/columns/", {"list": of.key, "column": [*of.names]})
    assert cells(html(console.get(address))) == (heads, heads)
