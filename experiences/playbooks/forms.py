"""Forms of playbooks. Checking is the services' work; a form keeps what was typed and carries the messages."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import ServiceForm
from experiences.learning.playbooks.items import CATEGORIES, MAX_CONTENT, TITLES, PlaybookItem
from experiences.models import ContextDelta

CHOICES = [(key, TITLES[key]) for key in CATEGORIES]


class ItemForm(ServiceForm):
    """One item. ``version`` is the playbook's that was shown: what moved meanwhile is not overwritten."""

    category = forms.ChoiceField(choices=CHOICES)
    content = forms.CharField(
        max_length=MAX_CONTENT,
        label="Text",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="One insight for future tasks. Personal data is removed when saved.",
    )
    rationale = forms.CharField(required=False, max_length=2000, label="Why", help_text="Kept in the history.")
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    @classmethod
    def of(cls, section: PlaybookItem | None, version: int) -> ItemForm:
        values = {"category": section.category, "content": section.content} if section else {"category": "learnings"}
        return cls(initial=values | {"version": version})

    def values(self) -> dict[str, Any]:
        """Arguments of ``playbook_edit``."""
        values = dict(self.cleaned_data)
        return values | {"expected": values.pop("version")}


class ReviewForm(ServiceForm):
    """A waiting change, to be approved as it is or with another text."""

    category = forms.ChoiceField(choices=CHOICES)
    content = forms.CharField(
        max_length=MAX_CONTENT,
        label="New text",
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="Keep or improve the text. Approving confirms that it is right.",
    )

    @classmethod
    def of(cls, delta: ContextDelta, category: str = "") -> ReviewForm:
        return cls(initial={"category": delta.category or category, "content": delta.content})

    @classmethod
    def filled(cls, delta: ContextDelta) -> ReviewForm:
        """As if a person had sent it as it came."""
        return cls({"category": delta.category or CATEGORIES[-1], "content": delta.content})
