"""Admin of limits and prices, through the services and with their history; the books themselves are read-only."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html_join
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from agentcore_site.identity.administration import (
    KeyedTableAdmin,
    LongTableAdmin,
    ServiceAdmin,
    actor_at,
    list_page,
    organizations_of,
)
from agentcore_site.lib.money import MICROS, micros
from agentcore_site.lib.money_format import exact
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.permissions import require
from budgets.alerts.webhooks import SIGNATURE, webhook_secret
from budgets.forms import DollarsField
from budgets.ledger.accounts import month_over
from budgets.models import (
    Budget,
    BudgetAlert,
    BudgetLimit,
    BudgetSettings,
    LedgerDay,
    LedgerEntry,
    ModelPrice,
    Period,
    Reservation,
    Scope,
)
from budgets.presenters.budget_verdict import forecast_of, spending_figure
from budgets.presenters.limit_effects import limit_effects
from budgets.presenters.naming import all_agents, name_of
from budgets.presenters.price_list import price_changes, price_lines
from budgets.services import ShownLimit, budget_settings_set, limit_change, limit_owner, owner_of, price_save, priced

DOLLARS: dict[str, Any] = {
    "min_value": Decimal(0),
    "max_digits": 15,
    "decimal_places": 6,
    "required": False,
    "widget": UnfoldAdminDecimalFieldWidget,
}


def in_dollars(amount_micros: int | None) -> Decimal | None:
    return None if amount_micros is None else Decimal(amount_micros) / MICROS


def in_micros(amount: Decimal | None) -> int | None:
    return None if amount is None else micros(amount)


def money_column(field: str, title: str, *, none: str = "", ordered: bool = True) -> Any:
    @admin.display(description=title, ordering=field if ordered else None)
    def shown(self: Any, row: Any) -> str:
        amount_micros = getattr(row, field)
        return none if amount_micros is None else exact(amount_micros)

    return shown


class BudgetForm(forms.ModelForm):  # type: ignore[type-arg]
    """``known_agents`` are those that the user of the form may choose."""

    known_agents: QuerySet[Any] | None = None

    shown: ShownLimit  # the limit that the page showed, which may not be the present one
    limit_usd = forms.DecimalField(
        label="Limit in dollars", help_text="Empty: not limited.", show_hidden_initial=True, **DOLLARS
    )
    agent = forms.ModelChoiceField(  # type: ignore[var-annotated]
        queryset=None,
        required=False,
        empty_label="none",
        widget=UnfoldAdminSelectWidget,
        help_text="None: the organisation's own budget.",
    )
    note = forms.CharField(
        max_length=200, required=False, widget=UnfoldAdminTextInputWidget, help_text="Why; it is kept in the history."
    )

    class Meta:
        model = Budget
        fields = ["organization"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].queryset = self.known_agents  # type: ignore[attr-defined]
        if self.instance.pk:
            self.initial["limit_usd"] = in_dollars(self.instance.limit_micros)

    @property
    def limit_micros(self) -> int | None:
        return in_micros(self.cleaned_data["limit_usd"])

    def clean(self) -> dict[str, Any] | None:
        """Also reads the limit that the page showed, which the request sends back and may garble."""
        cleaned = super().clean()
        sent = self.data.get(self["limit_usd"].html_initial_name)
        try:
            self.shown = ShownLimit(in_micros(self.fields["limit_usd"].clean(sent)))
        except ValidationError as error:
            raise ValidationError("The limit that this page showed came back garbled. Load the page again.") from error
        return cleaned


class WouldLimitForm(forms.Form):
    """The limit whose effect on the past months is asked for."""

    would_limit = DollarsField(required=False)


@admin.register(Budget)
class BudgetAdmin(ServiceAdmin):
    form = BudgetForm
    change_form_outer_after_template = "admin/budgets/budget.html"
    list_display = [
        "owner",
        "organization",
        "scope",
        "when",
        "limit_",
        "spent_",
        "reserved_",
        "debt_",
        "used",
    ]
    list_filter = ["scope", "period", "period_start", "organization"]
    list_select_related = ["organization", "job"]
    search_fields = ["organization__name", "job__title"]
    search_help_text = "The name of an organisation, a job or an agent, or an id."
    readonly_fields = ["spent_", "reserved_", "debt_", "used", "history"]
    autocomplete_fields = ["organization"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj is None:
            return ["organization", "agent", "limit_usd", "note"]
        if not self.has_change_permission(request, obj):
            return ["organization", "limit_", *self.readonly_fields]
        return ["organization", "limit_usd", "note", *self.readonly_fields]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        known = all_agents().filter(archived_at=None).order_by("name")
        if not request.user.is_superuser:
            known = known.filter(organization__in=organizations_of(request))
        return type(form.__name__, (form,), {"known_agents": known})

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A month that is over is only shown: its owner's limit is another month's matter."""
        return not (obj is not None and month_over(obj)) and super().has_change_permission(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*self.readonly_fields, "organization"] if obj else []

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        names = all_agents().filter(id=OuterRef("agent_id"), organization_id=OuterRef("organization_id")).values("name")
        return super().get_queryset(request).annotate(agent_name=Subquery(names[:1]))

    @admin.display(description="budget of", ordering="scope")
    def owner(self, budget: Any) -> str:
        return name_of(budget, {budget.owner_id: budget.agent_name} if budget.agent_name else {})

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        if wanted := uuid_of(search_term.strip()):
            return queryset.filter(Q(owner_id=wanted) | Q(agent_id=wanted)), False
        if not search_term:
            return queryset, False
        found, doubled = super().get_search_results(request, queryset, search_term)
        return found | queryset.filter(scope=Scope.AGENT, agent_name__icontains=search_term), doubled

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        actor, note = actor_at(request), form.cleaned_data["note"]
        if not request.user.is_superuser:
            require(actor, "budget.edit", obj.organization_id)
        if not change:
            agent = form.cleaned_data["agent"]
            owner = limit_owner(obj.organization_id, agent_id=agent.id if agent else None)
            budget = limit_change(actor, owner, form.limit_micros, note=note)
        elif "limit_usd" in form.changed_data:
            budget = limit_change(actor, owner_of(obj), form.limit_micros, note=note, shown=form.shown)
        else:
            self.message_user(request, "The limit was left as it is, so that nothing was written.", messages.WARNING)
            return
        obj.__dict__.update({key: value for key, value in budget.__dict__.items() if key != "_state"})
        obj._state.adding = False

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """With the spending as a chart and, for ``?would_limit=``, what this limit would have stopped."""
        if budget := context.get("original"):
            context |= {"figure": spending_figure(budget, forecast_of(budget)), "effects": _effects(request, budget)}
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="period", ordering="period_start")
    def when(self, budget: Budget) -> str:
        return "in all" if budget.period == Period.TOTAL else f"{budget.period_start:%B %Y}"

    limit_ = money_column("limit_micros", "limit", none="not limited")
    spent_ = money_column("spent_micros", "spent")
    reserved_ = money_column("reserved_micros", "on hold")
    debt_ = money_column("debt_micros", "owed")

    @admin.display(description="used")
    def used(self, obj: Budget) -> str:
        return "" if obj.share is None else f"{100 * obj.share:.0f} %"

    @admin.display(description="history of the limit")
    def history(self, obj: Budget) -> str:
        rows = BudgetLimit.objects.filter(owner_id=obj.owner_id, organization_id=obj.organization_id)[:50]
        lines = ((f"{row.at:%-d %b %Y, %H:%M} UTC", row.actor, _change(row), row.note) for row in rows)
        return format_html_join("", "<div>{} {}: {} {}</div>", lines) or "never changed"


def _effects(request: HttpRequest, budget: Budget) -> dict[str, Any]:
    typed = request.GET.get("would_limit", "")
    form = WouldLimitForm({"would_limit": typed})
    if not form.is_valid():
        return {"typed": typed, "problem": form.errors["would_limit"][0]}
    limit_micros = form.cleaned_data["would_limit"]
    return {"typed": typed, "months": [] if limit_micros is None else limit_effects(budget, limit_micros)}


def _change(row: BudgetLimit) -> str:
    before, after = ("not limited" if one is None else exact(one) for one in (row.before_micros, row.limit_micros))
    return f"{before} → {after}"


class PriceAdminForm(forms.ModelForm):  # type: ignore[type-arg]
    """Dollars per million tokens, as providers print them."""

    input_usd = forms.DecimalField(label="Input, dollars per million tokens", **DOLLARS)
    cached_usd = forms.DecimalField(label="Cached input", help_text="Empty: priced as input.", **DOLLARS)
    output_usd = forms.DecimalField(label="Output, dollars per million tokens", **DOLLARS)
    call_usd = forms.DecimalField(label="Dollars for each call", **DOLLARS)

    class Meta:
        model = ModelPrice
        fields = ["organization", "model", "valid_from", "free", "source"]

    FIELDS = {
        "input_usd": "input_micros",
        "cached_usd": "cached_input_micros",
        "output_usd": "output_micros",
        "call_usd": "per_call_micros",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, column in self.FIELDS.items():
            if self.instance.pk and name in self.fields:
                self.initial[name] = in_dollars(getattr(self.instance, column))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for name, column in self.FIELDS.items():
            given = cleaned.get(name)
            empty = None if column == "cached_input_micros" else 0
            setattr(self.instance, column, empty if given is None else micros(given))
        return cleaned


@admin.register(ModelPrice)
class ModelPriceAdmin(ServiceAdmin):
    form = PriceAdminForm
    list_display = ["model", "valid_from", "organization", "input_", "cached_", "output_", "free", "source"]
    list_filter = ["free", "valid_from", "organization"]
    autocomplete_fields = ["organization"]
    fields = [
        "organization", "model", "valid_from", "free", "input_usd", "cached_usd", "output_usd", "call_usd", "others",
        "source", "history",
    ]  # fmt: skip
    readonly_fields = ["others", "history"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = self.model._default_manager.all().order_by(*self.get_ordering(request) or ["model", "-valid_from"])
        if request.user.is_superuser:
            return rows
        # Prices for all are seen by all users, and changed by superusers.
        return rows.filter(Q(organization__in=organizations_of(request)) | Q(organization=None))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None and obj.organization_id is None and not request.user.is_superuser:
            return False
        return super().has_change_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        stored = ModelPrice.objects.filter(pk=obj.pk).first() if change else None
        price_save(actor_at(request), obj, before=priced(stored) if stored else None)

    @admin.display(description="other tokens and long prompts")
    def others(self, obj: ModelPrice) -> str:
        if obj is None or obj.pk is None:
            return "as they are in force"
        [line] = price_lines([obj])
        return "; ".join([*line.kinds, *line.tiers]) or "as above"

    @admin.display(description="history of the price")
    def history(self, obj: ModelPrice) -> str:
        lines = ((f"{change.at:%-d %b %Y, %H:%M} UTC", change.actor, change.text) for change in price_changes(obj)[:50])
        return format_html_join("", "<div>{} {}: {}</div>", lines) or "never changed by hand"

    input_ = money_column("input_micros", "input")
    cached_ = money_column("cached_input_micros", "cached", none="as input", ordered=False)
    output_ = money_column("output_micros", "output")


class BudgetSettingsForm(forms.ModelForm):  # type: ignore[type-arg]
    minute_usd = forms.DecimalField(
        label="Dollars a minute", help_text="What all calls together may cost a minute. Empty: not limited.", **DOLLARS
    )

    class Meta:
        model = BudgetSettings
        fields = ["organization", "email_admins", "webhook_url", "secret_version"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "minute_usd" in self.fields:
            self.initial["minute_usd"] = in_dollars(self.instance.most_per_minute_micros)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        self.instance.most_per_minute_micros = in_micros(cleaned.get("minute_usd"))
        return cleaned


@admin.register(BudgetSettings)
class BudgetSettingsAdmin(ServiceAdmin):
    form = BudgetSettingsForm
    list_display = ["organization", "email_admins", "webhook_url", "minute_"]
    autocomplete_fields = ["organization"]
    fields = ["organization", "email_admins", "webhook_url", "secret_version", "minute_usd"]
    minute_ = money_column("most_per_minute_micros", "a minute", none="not limited")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["organization"] if obj else []

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        budget_settings_set(
            actor_at(request),
            obj.organization,
            email_admins=obj.email_admins,
            webhook_url=obj.webhook_url,
            secret_version=obj.secret_version,
            most_per_minute_micros=obj.most_per_minute_micros,
        )
        obj.secret_is_new = not change or "secret_version" in form.changed_data
        obj._state.adding = False

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return self._secret_shown(request, obj)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return self._secret_shown(request, obj) if obj.secret_is_new else super().response_change(request, obj)

    def _secret_shown(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """The one page that shows it: a new secret is in no message and no cookie, as in the console."""
        context = {
            **self.admin_site.each_context(request),
            "title": "The new signing secret, shown only now",
            "opts": self.opts,
            "row": obj,
            "header": SIGNATURE,
            "secret": webhook_secret(obj.organization_id, obj.secret_version),
        }
        response = TemplateResponse(request, "admin/budgets/secret.html", context)
        response["Cache-Control"] = "no-store, private"
        return response


list_page(BudgetLimit, "at organization scope owner_id before_micros limit_micros actor note")
list_page(
    BudgetAlert,
    "created_at budget kind threshold spent_micros limit_micros delivered_at tries error",
    list_filter=["kind", "threshold", ("delivered_at", admin.EmptyFieldListFilter)],
    search_fields=["budget__organization__name"],
)


class BookAdmin(KeyedTableAdmin):
    key_fields = ("job_id", "agent_id")
    search_help_text = "The id of a job or an agent."


list_page(
    Reservation,
    "key state amount_micros actual_micros model purpose created_at expires_at ended_at",
    BookAdmin,
    list_filter=["state", "purpose"],
)
list_page(
    LedgerEntry,
    "id at kind model purpose spent_delta_micros reserved_delta_micros debt_delta_micros cost_micros input_tokens"
    " output_tokens source estimated job_id",
    BookAdmin,
    list_filter=["kind", "purpose", "source", "estimated"],
)
list_page(
    LedgerDay,
    "day group key purpose cost_micros calls input_tokens output_tokens cached_tokens estimated",
    LongTableAdmin,
    list_filter=["group", "purpose"],
    search_fields=["=key"],
    ordering=["-id"],
)
