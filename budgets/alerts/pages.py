"""Addresses that letters about budgets lead to."""

from __future__ import annotations

from django.urls import get_script_prefix


def limit_page(budget_id: int) -> str:
    """The form of a budget's limit. A path and not a name: reversing a name loads all addresses, and workers write
    letters too."""
    return f"{get_script_prefix()}budgets/{budget_id}/#limit"
