"""Every address of the site."""

from django.contrib import admin
from django.urls import include, path

from agentcore_site import health, prometheus, rest_urls, rpc
from agentcore_site.identity import jwks
from agentcore_site.views import (
    account,
    agents,
    audit,
    documents,
    encryption,
    guide,
    invitation,
    notices,
    overview,
    passkeys,
    password,
    people,
    saved,
    search,
    session,
    share_links,
    single_sign_on,
    summary,
    system,
    webhooks,
)

admin.autodiscover()

handler400 = "agentcore_site.rest_urls.bad_request"
handler403 = "agentcore_site.views.errors.forbidden"
handler404 = "agentcore_site.views.errors.not_found"
handler500 = "agentcore_site.views.errors.server_error"

console = [
    path("", overview.overview, name="overview"),
    path("overview/workers/", overview.workers, name="workers"),
    path("get-started/", guide.get_started, name="get_started"),
    path("get-started/hide/", guide.hide, name="guide_hide"),
    path("search/", search.search, name="search"),
    path("search/palette/", search.palette, name="palette"),
    path("sign-in/", session.SignIn.as_view(), name="sign_in"),
    path("sign-in/code/", session.code, name="sign_in_code"),
    path("sign-in/second-factor/", session.enrol, name="sign_in_enrol"),
    path("sign-in/passkey/", passkeys.sign_in, name="sign_in_passkey"),
    path("sign-in/passkey/begin/", passkeys.sign_in_begin, name="sign_in_passkey_begin"),
    path("sign-in/provider/", single_sign_on.begin, name="single_sign_on"),
    path("sign-in/provider/back/", single_sign_on.back, name="single_sign_on_back"),
    path("sign-out/", session.SignOut.as_view(), name="sign_out"),
    path("sign-out/everywhere/", session.everywhere, name="sign_out_everywhere"),
    path("password/forgotten/", password.forgotten, name="password_forgotten"),
    path("password/<str:person>/<str:token>/", password.reset, name="password_reset"),
    path("account/", account.account, name="account"),
    path("account/sign-ins/<uuid:sign_in_id>/end/", account.end, name="sign_in_end"),
    path("account/second-factor/", account.second_factor, name="second_factor"),
    path("account/second-factor/remove/", account.factor_off, name="second_factor_remove"),
    path("account/second-factor/recovery/", account.recovery, name="second_factor_recovery"),
    path("account/passkeys/", passkeys.add, name="passkey_add"),
    path("account/passkeys/begin/", passkeys.begin, name="passkey_begin"),
    path("account/passkeys/<uuid:passkey_id>/remove/", passkeys.remove, name="passkey_remove"),
    path("people/", people.people, name="people"),
    path("people/<int:member_id>/", people.change, name="member_change"),
    path("people/roles/", people.roles, name="roles"),
    path("people/second-factor/", people.requirement, name="second_factor_required"),
    path("people/<int:member_id>/second-factor/remove/", people.factor_off, name="member_factor_remove"),
    path("people/<int:member_id>/remove/", people.remove, name="member_remove"),
    path("people/invitations/<uuid:invitation_id>/resend/", people.resend, name="invitation_resend"),
    path("people/invitations/<uuid:invitation_id>/revoke/", people.revoke, name="invitation_revoke"),
    path("invitations/<str:token>/", invitation.invitation, name="invitation"),
    path("audit/", audit.audit, name="audit"),
    path("audit/export/", audit.export, name="audit_export"),
    path("audit/webhook/", audit.stream, name="audit_stream"),
    *(
        path(f"audit/webhook/{action}/", audit.stream_act, {"action": action}, name=f"audit_stream_{action}")
        for action in audit.STREAM_ACTS
    ),
    path("summary/", summary.summary, name="summary"),
    path("share-links/", share_links.share_links, name="share_links"),
    path("share-links/<uuid:share_link_id>/revoke/", share_links.revoke, name="share_link_revoke"),
    path("webhooks/", webhooks.webhooks, name="webhooks"),
    path("webhooks/new/", webhooks.webhook_new, name="webhook_new"),
    path("webhooks/<uuid:webhook_id>/", webhooks.webhook, name="webhook"),
    path("webhooks/<uuid:webhook_id>/test/", webhooks.webhook_test, name="webhook_test"),
    path("webhooks/<uuid:webhook_id>/on/", webhooks.webhook_switch, {"on": True}, name="webhook_on"),
    path("webhooks/<uuid:webhook_id>/off/", webhooks.webhook_switch, {"on": False}, name="webhook_off"),
    path("webhooks/<uuid:webhook_id>/secret/", webhooks.webhook_secret, name="webhook_secret"),
    path("webhooks/<uuid:webhook_id>/remove/", webhooks.webhook_remove, name="webhook_remove"),
    path("webhooks/deliveries/<uuid:delivery_id>/again/", webhooks.webhook_again, name="webhook_again"),
    path("notices/", notices.notices, name="notices"),
    path("notices/bell/", notices.bell, name="notice_bell"),
    path("notices/read/", notices.read, name="notices_read"),
    path("notices/settings/", notices.settings, name="notice_settings"),
    path("encryption/", encryption.encryption, name="encryption"),
    path("encryption/jobs/<uuid:job_id>/", encryption.encryption, name="encrypting"),
    path("encryption/<uuid:organization_id>/rotate/", encryption.rotate, name="encryption_rotate"),
    path("encryption/<uuid:organization_id>/end/", encryption.end, name="encryption_end"),
    path("encryption/<uuid:organization_id>/move/", encryption.move, name="encryption_move"),
    path("encryption/<uuid:organization_id>/stop/", encryption.stop, name="encryption_stop"),
    path("system/", system.system, name="system"),
    path("agents/", agents.agents, name="agents"),
    path("views/save/", saved.save, name="view_save"),
    path("views/<uuid:view_id>/", saved.change, name="view_change"),
    path("views/<uuid:view_id>/remove/", saved.remove, name="view_remove"),
    path("", include("experiences.urls")),
    path("", include("training.urls")),
    path("", include("evaluation.urls")),
    path("", include("evaluation.serving.urls")),
    path("", include("evaluation.events.urls")),
    path("", include("evaluation.warehouse.urls")),
    path("", include("budgets.urls")),
    path("agents/<str:ref>/", agents.agent, name="agent"),
]

# Programs first: Django tries one pattern after the other, and what has a prefix of its own skips the pages.
urlpatterns = [
    path("api/v1/jsonrpc", rpc.jsonrpc, name="jsonrpc"),
    path("api/v1/", include((rest_urls.urlpatterns, "api"))),
    path("internal/ace/", include(("experiences.playbooks.ace.urls", "ace"))),
    rest_urls.unknown,
    path(".well-known/jwks.json", jwks.jwks, name="jwks"),
    path("health/live", health.live, name="health-live"),
    path("health/ready", health.ready, name="health-ready"),
    path("health/", health.status, name="health"),
    path("metrics", prometheus.metrics, name="metrics"),
    path("docs/", documents.document, name="documents"),
    path("docs/<path:path>", documents.document, name="document"),
    path("admin/login/", session.admin_sign_in),
    path("admin/", admin.site.urls),
    *console,
]
