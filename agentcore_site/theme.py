"""The Django admin as a part of this house: its models under plain headings in place of apps, in the console's colours
(static/css/admin.css), with the words that the console has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.contrib.admin import sites
from django.http import HttpRequest
from django.urls import reverse
from unfold.apps import DefaultAppConfig
from unfold.sites import UnfoldAdminSite

# In this order. A model is under the heading of its app unless it is named itself.
HEADINGS: Final[Mapping[str, Sequence[str]]] = {
    "People": (
        "auth",
        "tenancy",
        "site_roof.savedview",
        "notices.notice",
        "notices.noticepreferences",
    ),
    "Jobs": (
        "jobs",
        "training",
        "evaluation",
        "experiences.annotation",
        "experiences.dataset",
        "experiences.datasetrow",
        "experiences.exportpart",
        "experiences.grouprecord",
        "experiences.trajectoryexport",
        "experiences.trajectoryrecord",
    ),
    "Money": ("budgets",),
    "Learning": ("experiences",),
    "Serving": ("serving",),
    "System": (
        "site_roof",
        "audit",
        "audit_export",
        "encryption",
        "events",
        "notices",
        "jobs.hostprocess",
        "experiences.archivedjob",
        "experiences.archiverule",
        "experiences.trajectoryarchive",
        "tenancy.mail",
    ),
}
_HEADING_OF: Final = {label: title for title, labels in HEADINGS.items() for label in labels}


def heading_of(model: Any) -> str:
    """That of the model, or of its app. An app that a site adds is under the last heading."""
    named = _HEADING_OF.get(model._meta.label_lower)
    return named or _HEADING_OF.get(model._meta.app_label, [*HEADINGS][-1])


class HouseAdminSite(UnfoldAdminSite):
    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
        """The models that the person may see, under their headings; of one app as Django lists them."""
        found = super().get_app_list(request, app_label)
        return found if app_label is not None else self._grouped(found)

    def _search_apps(self, app_list: list[dict[str, Any]], search_term: str) -> list[Any]:
        """By the heading too: the filter over the list of models finds what that list shows."""
        return list(super()._search_apps(self._grouped(app_list), search_term))

    def _grouped(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        groups: dict[str, list[Any]] = {title: [] for title in HEADINGS}
        for app in found:
            for model in app["models"]:
                groups[heading_of(model["model"])].append(model)
        home = reverse(f"{self.name}:index")
        return [
            {
                "name": title,
                "app_label": title.lower(),
                "app_url": home,
                "has_module_perms": True,
                "models": sorted(models, key=lambda model: str(model["name"]).lower()),
            }
            for title, models in groups.items()
            if models
        ]


class ThemeConfig(DefaultAppConfig):  # type: ignore[misc]
    """In place of the theme's own: the same, with this house's admin site."""

    name = "unfold"

    def ready(self) -> None:
        admin.site = sites.site = HouseAdminSite()
        words_set()


def words_set() -> None:
    """One spelling in all forms, heads of columns and filters. What is shown only: no migration knows of it."""
    for model in apps.get_models():
        for field in model._meta.fields:
            if "organization" in (label := str(field.verbose_name)):
                field.verbose_name = label.replace("organization", "organisation").removesuffix(" id")
        if not model._meta.original_attrs.get("verbose_name_plural"):  # trajectories, not "trajectorys"
            model._meta.verbose_name_plural = re.sub(r"([^aeiou])ys$", r"\1ies", str(model._meta.verbose_name_plural))
    organization = apps.get_model("tenancy", "Organization")
    organization._meta.verbose_name, organization._meta.verbose_name_plural = "organisation", "organisations"
