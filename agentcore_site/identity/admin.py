"""Admin of organisations, people and keys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin as BaseUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import action
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from agentcore_site.identity.administration import (
    AuditedAdmin,
    ReadOnlyAdmin,
    ScopedAdmin,
    ServiceAdmin,
    WithReasons,
    actor_at,
    list_page,
    organizations_of,
    people_of,
    service_action,
)
from agentcore_site.identity.invitations import invitation_create, invitation_resend, invitation_revoke, link_at
from agentcore_site.lib.backoff import MOST_TRIES
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money_format import money
from agentcore_site.tenancy.members import member_change, member_remove
from agentcore_site.tenancy.models import (
    ApiKey,
    BrowserSession,
    Erasure,
    Invitation,
    Mail,
    Membership,
    Organization,
    Passkey,
    ProviderAccount,
    SecondFactor,
    TokenFamily,
)
from agentcore_site.tenancy.role_changes import role_change
from agentcore_site.tenancy.role_groups import PREFIX, group_name, rights, role_of
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.services import api_key_revoke

admin.site.unregister(User)
admin.site.unregister(Group)


class MembershipInline(TabularInline):  # type: ignore[misc]
    """To be read; memberships are edited on their own page, where each change is logged."""

    model = Membership
    extra = 0
    fields = ["organization", "role", "can_export"]

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ForSuperusers(ModelAdmin):  # type: ignore[misc]
    """Accounts and groups are the site's and no organisation's: who may change them could make any account a
    superuser, so that no permission of Django's opens them."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(User)
class UserAdmin(ForSuperusers, BaseUserAdmin, AuditedAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["username", "email", "is_active", "is_staff", "last_login"]
    inlines = [MembershipInline]

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> list[Any]:
        return self.inlines if obj is not None else []

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Neither groups of roles nor their rights: who has a role in an organisation is in its memberships."""
        if db_field.name == "groups":
            kwargs["queryset"] = Group.objects.exclude(name__startswith=PREFIX)
        if db_field.name == "user_permissions":
            kwargs["queryset"] = Permission.objects.exclude(pk__in=rights())
        return super().formfield_for_manytomany(db_field, request, **kwargs)


class RightsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Rights by the words that the page *Roles* has for them."""

    def label_from_instance(self, obj: Any) -> str:
        return str(obj.name)


@admin.register(Group)
class GroupAdmin(WithReasons, ForSuperusers, BaseGroupAdmin):  # type: ignore[misc]
    """Groups of people of the admin, and the four that say what roles may do (``tenancy.role_groups``). The latter are
    changed by superusers, and seen by the admins of organisations too."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        rows: QuerySet[Group] = super().get_queryset(request)
        return rows if request.user.is_superuser else rows.filter(name__in=[group_name(one) for one in Role])

    def has_module_permission(self, request: HttpRequest) -> bool:
        return super().has_module_permission(request) or bool(organizations_of(request))

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return super().has_view_permission(request, obj) or bool(organizations_of(request))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or role_of(obj) is None)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["name"] if obj is not None and role_of(obj) else []

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["name", "permissions"]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """A role is given rights alone, and other groups none: in them a right would mean nothing."""
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        if "permissions" not in form.base_fields:
            return form
        if obj is not None and role_of(obj):
            widget = UnfoldAdminCheckboxSelectMultipleWidget()
            form.base_fields["permissions"] = RightsField(rights().order_by("name"), label="May", widget=widget)
        else:
            plain = Permission.objects.exclude(pk__in=rights())
            form.base_fields["permissions"].queryset = plain.select_related("content_type")
        return form

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if role_of(obj) and change and not form.has_changed():
            return
        if obj.name.startswith(PREFIX) and not (change and role_of(obj)):
            raise Invalid(f"Names that begin with “{PREFIX}” are those of roles. Take another name.")
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        if role := role_of(form.instance):
            role_change(actor_at(request), role, {one.codename for one in form.cleaned_data["permissions"]})
        else:
            super().save_related(request, form, formsets, change)


@admin.register(Organization)
class OrganizationAdmin(ScopedAdmin):
    organization_path = "id"
    list_display = ["name", "slug", "members", "max_active_jobs", "created_at"]
    readonly_fields = ["created_at"]
    prepopulated_fields = {"slug": ["name"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Organization]:
        return super().get_queryset(request).annotate(n_members=Count("memberships"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    @admin.display(description="members", ordering="n_members")
    def members(self, row: Any) -> int:
        return int(row.n_members)


@admin.register(Membership)
class MembershipAdmin(ServiceAdmin):
    list_display = ["user", "organization", "role", "can_export", "created_at"]
    search_fields = ["user__username", "user__email", "organization__name"]
    readonly_fields = ["created_at"]

    def get_autocomplete_fields(self, request: HttpRequest) -> list[str]:
        """Accounts are searched by superusers; an organisation's admin chooses among the few of theirs."""
        return ["user", "organization"] if request.user.is_superuser else ["organization"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Person and organisation stay: another person's membership would be made without their consent."""
        return [*self.readonly_fields, "user", "organization"] if obj else self.readonly_fields

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Members leave: the one row that is deleted here."""
        return bool(request.user.is_superuser) or bool(organizations_of(request))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            member_change(actor_at(request), obj, role=obj.role, can_export=obj.can_export)
        else:
            super().save_model(request, obj, form, change)

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        member_remove(actor_at(request), obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        self.apply(request, queryset, "Removed", member_remove)


@admin.register(Invitation)
class InvitationAdmin(ServiceAdmin):
    list_display = ["email", "organization", "role", "invited_by", "sent_at", "expires_at", "outcome", "ended_at"]
    autocomplete_fields = ["organization"]
    fields = ["organization", "email", "role", "can_export"]
    actions = ["resend", "revoke"]

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        values: dict[str, Any] = {"email": obj.email, "role": obj.role, "can_export": obj.can_export}
        made = invitation_create(actor_at(request), obj.organization, **values, link=link_at(request))
        obj.pk, obj._state.adding = made.pk, False

    @action(description="Send the selected invitations again")
    def resend(self, request: HttpRequest, queryset: QuerySet[Invitation]) -> None:
        link = link_at(request)
        self.apply(request, queryset, "Sent again", lambda actor, row: invitation_resend(actor, row, link=link))

    revoke = service_action("Revoke the selected invitations", "Revoked", invitation_revoke)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = ["name", "prefix", "user", "organization", "limits", "expires_at", "revoked_at", "last_used_at"]
    exclude = ["digest"]
    actions = ["revoke"]

    revoke = service_action("Revoke the selected keys", "Revoked", api_key_revoke)

    def limits(self, row: ApiKey) -> str:
        found = [f"{row.per_minute:,} a minute"] if row.per_minute is not None else []
        found += [f"{money(row.monthly_micros)} a month"] if row.monthly_micros is not None else []
        return ", ".join(found + ([f"from {', '.join(row.addresses)}"] if row.addresses else []))


class OfPeopleAdmin(ReadOnlyAdmin):
    """Rows of the people that one sees."""

    organization_path = ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = self.model._default_manager.order_by(*self.get_ordering(request) or ["-created_at"])
        return rows if request.user.is_superuser else rows.filter(user__in=people_of(request))


list_page(BrowserSession, "user created_at used_at ip browser", OfPeopleAdmin, exclude=["session_key"])
# It is taken off on the page *People*, or by ``manage.py take_off_second_factor``.
list_page(SecondFactor, "user created_at confirmed_at", OfPeopleAdmin, exclude=["sealed", "recovery", "last_step"])
# It is removed by its person on the page *Signing in*, or with the second factor by an admin.
list_page(Passkey, "user name created_at used_at", OfPeopleAdmin, exclude=["credential_id", "key", "sign_count"])
list_page(ProviderAccount, "user issuer subject created_at", OfPeopleAdmin)
# Sign-ins of programs.
list_page(TokenFamily, "user created_at renewed_at expires_at ended_at", OfPeopleAdmin, exclude=["current"])
list_page(Erasure, "created_at organization requested_by found left")


@admin.register(Mail)
class MailAdmin(ReadOnlyAdmin):
    """The outbox. What a mail says is not shown: it may hold a link that lets its reader in."""

    list_display = ["created_at", "subject", "recipients", "state", "tries", "error", "organization"]
    list_filter = [("sent_at", admin.EmptyFieldListFilter), "organization"]
    exclude = ["body"]

    @admin.display(description="status")
    def state(self, mail: Mail) -> str:
        if mail.sent_at is not None:
            return "sent"
        return "given up" if mail.tries >= MOST_TRIES else "waiting"
