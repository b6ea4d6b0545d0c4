"""Filters of the console: numbers with units, money, times."""

from __future__ import annotations

from django import template

register = template.Library()
