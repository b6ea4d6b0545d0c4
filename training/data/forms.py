"""Forms of datasets."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.urls import reverse_lazy

from agentcore_site.console.forms import ServiceForm
from experiences.agents.services.datasets import LONGEST_DOMAIN, LONGEST_NAME
from experiences.models import Dataset

ABOUT = "Topic of its queries, as named by a prompt pack; may be empty."


# Attributes of what shows the file's columns and first rows again when it changes.
PREVIEWED = {
    "hx-post": reverse_lazy("training:dataset_preview"),
    "hx-encoding": "multipart/form-data",
    "hx-include": "closest form",
    "hx-target": "#preview",
    "hx-trigger": "change",
}


class DatasetForm(ServiceForm):
    """Name and domain: the rows of a dataset never change."""

    name = forms.CharField(max_length=LONGEST_NAME)
    domain = forms.CharField(max_length=LONGEST_DOMAIN, required=False, help_text=ABOUT)

    @classmethod
    def of(cls, dataset: Dataset, typed: Any) -> DatasetForm:
        return cls(typed, initial={"name": dataset.name, "domain": dataset.domain})


class UploadForm(ServiceForm):
    file = forms.FileField(
        help_text="JSONL, JSON, CSV, TSV or Parquet, each also in gzip; at most 10,000 rows and 64 MB.",
        widget=forms.ClearableFileInput(attrs=PREVIEWED),
    )
    query_column = forms.CharField(max_length=200, required=False, widget=forms.HiddenInput)
    answer_column = forms.CharField(max_length=200, required=False, widget=forms.HiddenInput)
    name = forms.CharField(max_length=LONGEST_NAME, required=False, help_text="Empty: the file's name.")
    domain = forms.CharField(max_length=LONGEST_DOMAIN, required=False, help_text=ABOUT)


class AnnotatedForm(ServiceForm):
    """Destination of rows of annotated trajectories: the next version of a dataset, or a new one."""

    dataset = forms.ChoiceField(
        required=False, help_text="The next version adds these rows; existing queries get the new answer."
    )
    name = forms.CharField(max_length=LONGEST_NAME, required=False, help_text="Of the dataset; empty: the agent's.")
    answer = forms.CharField(
        label="Correct answer",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Empty: the annotated answer, or the trajectory's answer if it was good.",
    )

    def __init__(self, *args: Any, datasets: QuerySet[Dataset], one: bool, **kwargs: Any) -> None:
        """``one``: a single trajectory, of which the answer can be given here."""
        super().__init__(*args, **kwargs)
        offered = [(str(row.pk), f"{row.name}, version {row.version}") for row in datasets.order_by("name", "-version")]
        field: Any = self.fields["dataset"]
        field.choices = [("", "A new dataset"), *offered]
        if not one:
            del self.fields["answer"]
