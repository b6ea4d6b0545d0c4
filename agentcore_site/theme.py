"""The Django admin as a part of this house: its models under plain headings in place of apps, in the console's colours
(static/css/admin.css), with the words that the console has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.contrib.admin import sites
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
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
# The models that people edit or act on, in the order of the index (``admin_index`` has their figures). All others are
# records, which are folded.
EDITED: Final = (
    "budgets.budget",
    "jobs.job",
    "experiences.agent",
    "experiences.modelendpoint",
    "budgets.modelprice",
    "tenancy.membership",
    "tenancy.invitation",
    "tenancy.apikey",
    "notices.webhookendpoint",
    "tenancy.organization",
)
_HEADING_OF: Final = {label: title for title, labels in HEADINGS.items() for label in labels}


def heading_of(model: Any) -> str:
    """That of the model, or of its app. An app that a site adds is under the last heading."""
    named = _HEADING_OF.get(model._meta.label_lower)
    return named or _HEADING_OF.get(model._meta.app_label, [*HEADINGS][-1])


def edited_of(app_list: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The models of ``EDITED`` that a list has, in that order."""
    known = {model["model"]._meta.label_lower: model for app in app_list for model in app["models"]}
    return [known[label] for label in EDITED if label in known]


def records_of(app_list: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The list without ``EDITED``, under the same headings."""
    rest = [
        {**app, "models": [model for model in app["models"] if model["model"]._meta.label_lower not in EDITED]}
        for app in app_list
    ]
    return [app for app in rest if app["models"]]


class HouseAdminSite(UnfoldAdminSite):
    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Also the models that people edit, and the records that are folded beside them."""
        context = super().each_context(request)
        listed = context["available_apps"]
        records = records_of(listed)
        addresses = [model["admin_url"] for app in records for model in app["models"] if model["admin_url"]]
        inside = any(request.path.startswith(address) for address in addresses)
        return context | {"edited": edited_of(listed), "records": records, "in_records": inside}

    def extra_urls(self) -> list[URLPattern]:
        return [path("records/", self.admin_view(self.records), name="records")]

    def records(self, request: HttpRequest) -> HttpResponse:
        """One search over the records of all models."""
        from agentcore_site.admin_search import record_search

        found = record_search(self, request, EDITED)
        request.current_app = self.name  # type: ignore[attr-defined]
        context = {**self.each_context(request), "title": "Search the records", "search": found}
        return TemplateResponse(request, "admin/records.html", context, status=400 if found.problem else 200)

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
