"""Forms of datasets."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import ServiceForm
from experiences.agents.services.datasets import LONGEST_DOMAIN, LONGEST_NAME
from experiences.models import Dataset

ABOUT = "What its queries are about, as a prompt pack names it; may be empty."


class DatasetForm(ServiceForm):
    """Name and domain: the rows of a dataset never change."""

    name = forms.CharField(max_length=LONGEST_NAME)
    domain = forms.CharField(max_length=LONGEST_DOMAIN, required=False, help_text=ABOUT)

    @classmethod
    def of(cls, dataset: Dataset, typed: Any) -> DatasetForm:
        return cls(typed, initial={"name": dataset.name, "domain": dataset.domain})


class UploadForm(ServiceForm):
    file = forms.FileField(
        help_text='JSONL with {"query": "...", "expected_outcome": {...}} in each line, or CSV with these columns; at '
        "most 10,000 rows and 64 MB.",
    )
    name = forms.CharField(max_length=LONGEST_NAME, required=False, help_text="Empty: the file's name.")
    domain = forms.CharField(max_length=LONGEST_DOMAIN, required=False, help_text=ABOUT)
