"""The questions of the playground and their candidates."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

from agentcore_site.console.forms import ServiceForm
from agentcore_site.lib.errors import Conflict, Insufficient, Invalid
from agentcore_site.lib.money import micros
from evaluation.serving.playground.candidates import Candidate, Candidates
from evaluation.serving.playground.rows import MOST_ROWS, RowsChoice, RowTerms, RunCell
from evaluation.serving.playground.services import MOST, TrialQuestion
from experiences.rollouts.environments.scorers import SCORERS

LONGEST: Final = 100_000  # characters of a text


class CandidateField(forms.ChoiceField):
    """An agent, a release or a model, by its id; the service says whether it can be called."""

    def valid_value(self, value: Any) -> bool:
        return True


class TermsForm(ServiceForm):
    """The limits of each answer of a run."""

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
        help_text="A call that could exceed the limit is not made. The budgets of the playground, the organisation and"
        " the agent apply too.",
    )
    run = forms.CharField(max_length=500, widget=forms.HiddenInput)

    @property
    def limits(self) -> dict[str, Any]:
        found = self.cleaned_data
        limits = {"max_tokens": found["max_tokens"], "most_micros": micros(found["limit_usd"])}
        return {"system": found["system"], **limits}


class QuestionForm(TermsForm):
    question = forms.CharField(
        max_length=LONGEST, strip=False, widget=forms.Textarea(attrs={"rows": 5}), label="Question"
    )

    @property
    def asked(self) -> TrialQuestion:
        return TrialQuestion(self.cleaned_data["question"], **self.limits)


class CandidatesForm(ServiceForm):
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

    @property
    def chosen(self) -> list[Candidate]:
        found = self.cleaned_data
        named = [(found[f"candidate_{place}"], found[f"prompt_{place}"]) for place in range(1, MOST + 1)]
        return [Candidate(*one) for one in named if one[0]]


class PlaygroundForm(CandidatesForm, QuestionForm):
    def values(self) -> dict[str, Any]:
        return {"candidates": self.chosen, "question": self.asked, "run": self.cleaned_data["run"]}


class RowTermsForm(TermsForm):
    """Rows of a dataset, and how answers to them are judged."""

    dataset = CandidateField(label="Dataset")
    scorer = forms.ChoiceField(
        choices=[("auto", "Each row's own"), *((name, name) for name in SCORERS)],
        initial="auto",
        label="Scorer",
        help_text="Compares an answer with what its row expects.",
    )
    judge = CandidateField(
        required=False, label="Judge", help_text="The model that judges rows with a rubric. It is paid for too."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit = self.fields["limit_usd"]
        limit.initial = Decimal("0.05")
        limit.help_text = "The same limit holds for each verdict of a judge. The budgets apply too."

    @property
    def terms(self) -> RowTerms:
        found = self.cleaned_data
        return RowTerms(**self.limits, scorer=found["scorer"], judge=found["judge"])


class RowsForm(CandidatesForm, RowTermsForm):
    """``datasets``: values and labels."""

    refusals = (Invalid, Conflict, Insufficient)
    n = forms.IntegerField(min_value=1, max_value=MOST_ROWS, initial=5, label="Rows", help_text=f"At most {MOST_ROWS}.")
    pick = forms.ChoiceField(choices=[("first", "The first ones"), ("random", "At random")], label="Which rows")
    seed = forms.IntegerField(
        min_value=0, max_value=2**31 - 1, initial=0, label="Seed", help_text="The same seed draws the same rows."
    )

    def __init__(self, *args: Any, offered: Candidates, datasets: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, offered=offered, **kwargs)
        self.fields["dataset"].widget.choices = [("", "Choose one"), *datasets]  # type: ignore[attr-defined]
        self.fields["judge"].widget.choices = [("", "None"), *offered.models]  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        found = self.cleaned_data
        choice = RowsChoice(found["dataset"], found["n"], found["pick"] == "random", found["seed"])
        return {"candidates": self.chosen, "choice": choice, "terms": self.terms, "run": found["run"]}


class CellForm(RowTermsForm):
    """One candidate of a run over rows at its place, and one row, by its index in the dataset and its number."""

    candidate = forms.CharField(max_length=80)
    prompt = forms.CharField(max_length=LONGEST, strip=False, required=False)
    place = forms.IntegerField(min_value=0, max_value=MOST - 1)
    row = forms.IntegerField(min_value=0, max_value=2**31 - 1)
    at = forms.IntegerField(min_value=0, max_value=MOST_ROWS - 1)
    n = forms.IntegerField(min_value=1, max_value=MOST_ROWS)

    def clean(self) -> dict[str, Any]:
        found = super().clean()
        if "at" in found and "n" in found and found["at"] >= found["n"]:
            raise ValidationError("The run has fewer rows.")
        return found

    def values(self) -> dict[str, Any]:
        found = self.cleaned_data
        candidate = Candidate(found["candidate"], found["prompt"])
        return {
            "cell": RunCell(candidate, found["place"], found["row"], found["at"], found["n"]),
            "dataset_id": found["dataset"],
            "terms": self.terms,
            "run": found["run"],
        }


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
