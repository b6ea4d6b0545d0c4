"""The question of the playground and its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from django import forms

from agentcore_site.console.forms import ServiceForm
from agentcore_site.lib.money import micros
from evaluation.serving.playground.candidates import Candidate, Candidates
from evaluation.serving.playground.services import MOST, TrialQuestion

LONGEST: Final = 100_000  # characters of a text


class CandidateField(forms.ChoiceField):
    """An agent, a release or a model, by its id; the service says whether it can be called."""

    def valid_value(self, value: Any) -> bool:
        return True


class QuestionForm(ServiceForm):
    question = forms.CharField(
        max_length=LONGEST, strip=False, widget=forms.Textarea(attrs={"rows": 5}), label="Question"
    )
    system = forms.CharField(
        max_length=LONGEST,
        strip=False,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="System message",
        help_text="Sent before the question, after each candidate's own prompt. Empty: none.",
    )
    max_tokens = forms.IntegerField(min_value=1, max_value=32_768, initial=1_024, label="Maximum tokens per answer")
    limit_usd = forms.DecimalField(
        min_value=Decimal("0.0001"),
        max_value=Decimal(100),
        max_digits=9,
        decimal_places=4,
        initial=Decimal("0.50"),
        label="Maximum cost per answer, in dollars",
        help_text="A call that could exceed the limit is not made. The budgets of organisation and agent apply too.",
    )
    run = forms.CharField(max_length=500, widget=forms.HiddenInput)

    @property
    def asked(self) -> TrialQuestion:
        found = self.cleaned_data
        limits = {"max_tokens": found["max_tokens"], "most_micros": micros(found["limit_usd"])}
        return TrialQuestion(found["question"], found["system"], **limits)


class PlaygroundForm(QuestionForm):
    """``offered``: what can be chosen. The first candidate is required."""

    def __init__(self, *args: Any, offered: Candidates, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for place in range(1, MOST + 1):
            needed = place == 1
            self.fields[f"candidate_{place}"] = CandidateField(
                choices=[("", "Choose one" if needed else "None"), *offered.choices],
                required=needed,
                label=f"Candidate {place}",
            )
            self.fields[f"prompt_{place}"] = forms.CharField(
                max_length=LONGEST,
                strip=False,
                required=False,
                widget=forms.Textarea(attrs={"rows": 4}),
                label=f"Prompt of candidate {place}",
                help_text="Replaces the system prompt. Empty: the agent's own prompt, or none for a plain model.",
            )

    @property
    def places(self) -> list[dict[str, Any]]:
        """The fields of each candidate, for the template."""
        return [
            {"candidate": self[f"candidate_{place}"], "prompt": self[f"prompt_{place}"]} for place in range(1, MOST + 1)
        ]

    def values(self) -> dict[str, Any]:
        found = self.cleaned_data
        named = [(found[f"candidate_{place}"], found[f"prompt_{place}"]) for place in range(1, MOST + 1)]
        return {"candidates": [Candidate(*one) for one in named if one[0]], "question": self.asked, "run": found["run"]}


class AnswerForm(QuestionForm):
    """One candidate of a run, at its place in it, counted from 0."""

    candidate = forms.CharField(max_length=80)
    prompt = forms.CharField(max_length=LONGEST, strip=False, required=False)
    place = forms.IntegerField(min_value=0, max_value=MOST - 1)

    def values(self) -> dict[str, Any]:
        found = self.cleaned_data
        return {
            "candidate": Candidate(found["candidate"], found["prompt"]),
            "question": self.asked,
            "run": found["run"],
            "place": found["place"],
        }


class KeptRowForm(ServiceForm):
    """A question with its correct answer. ``dataset``: the id of the one that gets it; "" for a new one."""

    question = forms.CharField(max_length=LONGEST, strip=False, widget=forms.HiddenInput)
    answer = forms.CharField(max_length=LONGEST, widget=forms.Textarea(attrs={"rows": 2}), label="Correct answer")
    dataset = CandidateField(required=False, label="Dataset", help_text="It gets a next version with this row.")

    def __init__(self, *args: Any, datasets: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["dataset"].widget.choices = [("", "A new dataset"), *datasets]  # type: ignore[attr-defined]


class KeptLessonForm(ServiceForm):
    agent = CandidateField(label="Agent")
    lesson = forms.CharField(
        max_length=2_000,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="Lesson",
        help_text="It waits in the review queue until a person approves it.",
    )

    def __init__(self, *args: Any, agents: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].widget.choices = list(agents)  # type: ignore[attr-defined]


class PromptForm(ServiceForm):
    agent = forms.CharField(max_length=80)
    prompt = forms.CharField(max_length=LONGEST, strip=False)
