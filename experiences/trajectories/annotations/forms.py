"""The form of an annotation."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import RowForm
from experiences.trajectories.annotations.services import LARGEST_SCORE, LONGEST_LABEL, LONGEST_TEXT


class AnnotationForm(RowForm):
    """``step`` only where one is made: an annotation stays where it was put."""

    row_fields = ("label", "score", "comment", "answer")

    step = forms.IntegerField(required=False, min_value=1, help_text="Empty: the whole trajectory.")
    label = forms.CharField(max_length=LONGEST_LABEL, required=False, help_text="A word to filter by.")
    score = forms.FloatField(
        required=False, min_value=-LARGEST_SCORE, max_value=LARGEST_SCORE, help_text="A number of your own scale."
    )
    comment = forms.CharField(
        max_length=LONGEST_TEXT, required=False, widget=forms.Textarea(attrs={"rows": 3}), help_text="Your observation."
    )
    answer = forms.CharField(
        label="Correct answer",
        max_length=LONGEST_TEXT,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="The right answer; the expected outcome in a dataset of this trajectory.",
    )

    def __init__(self, *args: Any, labels: Any = (), placed: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["label"].widget.attrs["list"] = "labels"
        self.labels = list(labels)
        if not placed:
            del self.fields["step"]
