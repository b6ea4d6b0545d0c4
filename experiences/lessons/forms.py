"""Forms of lessons and prompt packs. The services check; a form keeps what was typed and carries the messages."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import RowForm
from experiences.models import PromptPack


class LessonForm(RowForm):
    """A lesson's text. ``version`` is the one that was shown: a lesson that moved meanwhile is not overwritten."""

    row_fields = ("summary", "version")

    summary = forms.CharField(
        max_length=1000,
        label="Lesson",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="One sentence; redacted and stamped when saved.",
    )
    why = forms.CharField(
        required=False, max_length=2000, label="Why", help_text="Reason of the change, kept in the history."
    )
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)


class PackForm(RowForm):
    """A prompt pack. Injections are one text in the form, with a line of three dashes between two."""

    BREAK = "\n---\n"
    row_fields = ("name", "domain", "system", "experience_slots", "max_words")

    name = forms.SlugField(max_length=60, help_text="Name in agents' forms and files.")
    domain = forms.CharField(max_length=60, required=False, help_text="Domain of the pack and its lessons.")
    system = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text="System prompt of the model before each task.",
    )
    injections = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="Texts after the prompt, separated by lines of ---.",
    )
    experience_slots = forms.IntegerField(
        min_value=0,
        max_value=1000,
        initial=20,
        label="Room for lessons",
        help_text="Maximum lessons in context at once.",
    )
    max_words = forms.IntegerField(
        min_value=1, max_value=200, initial=32, label="Words of a lesson", help_text="Maximum words of a lesson."
    )
    keep_lessons = forms.BooleanField(
        required=False,
        label="Keep its lessons for the new text",
        help_text="Without it those lessons are left out until a person vouches for them. Jobs at work keep the text "
        "that they began with; what they learn then holds for the new one only if you tick this.",
    )

    @classmethod
    def initial_of(cls, pack: PromptPack) -> dict[str, Any]:
        return super().initial_of(pack) | {"injections": cls.BREAK.join(pack.injections)}

    def clean_injections(self) -> str:
        return self._unix("injections")

    def clean_system(self) -> str:
        return self._unix("system")

    def values(self) -> dict[str, Any]:
        """Arguments for the services. Unchanged texts are passed byte for byte, since a stamp depends on them."""
        values = {name: value for name, value in self.cleaned_data.items() if value != self.initial.get(name)}
        if not self.initial:
            del values["keep_lessons"]  # nothing was learned under a new one
        if "injections" in values:
            values["injections"] = [text for text in values["injections"].split(self.BREAK) if text.strip()]
        return values

    def _unix(self, name: str) -> str:
        """A text with the line ends that it had before the browser sent it."""
        return str(self.cleaned_data[name]).replace("\r\n", "\n")
