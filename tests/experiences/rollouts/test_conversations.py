"""Queries that are conversations."""

from __future__ import annotations

from typing import Any

import pytest

from experiences.rollouts.conversations import QueryConversation, conversation_of, conversation_text

SAID = [
    {"role": "system", "content": "You sell tea."},
    {"role": "user", "content": "Which tea is mild?"},
    {"role": "assistant", "content": "White tea."},
    {"role": "user", "content": "And strong?"},
]
TEXT = "System: You sell tea.\n\nUser: Which tea is mild?\n\nAssistant: White tea.\n\nUser: And strong?"


def test_a_query_of_several_messages_is_said_one_by_one() -> None:
    assert conversation_text(SAID) == TEXT
    assert conversation_of(TEXT, {"messages": SAID}) == QueryConversation(
        "You sell tea.", (("user", "Which tea is mild?"), ("assistant", "White tea.")), "And strong?"
    )


@pytest.mark.parametrize(
    ("messages", "query"),
    [
        (None, TEXT),
        ("User: And strong?", "User: And strong?"),
        (SAID[1:2], "Which tea is mild?"),  # one message is a text
        (SAID[:3], conversation_text(SAID[:3])),  # the assistant spoke last
        ([SAID[1], {"role": "assistant", "content": ""}, SAID[3]], "User: Which tea is mild?"),  # a call of a tool
        ([SAID[1], {"role": "tool", "content": "white"}, SAID[3]], "User: Which tea is mild?"),
        ([SAID[1], "White tea.", SAID[3]], TEXT),
        (SAID, "And strong?"),  # not the text of these messages
    ],
)
def test_other_metadata_leaves_a_query_as_one_text(messages: Any, query: str) -> None:
    assert conversation_of(query, {"messages": messages}) is None
