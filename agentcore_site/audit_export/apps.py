from django.apps import AppConfig


class AuditExportConfig(AppConfig):
    name = "agentcore_site.audit_export"
    label = "audit_export"
    verbose_name = "Audit log elsewhere"

    def ready(self) -> None:
        from agentcore_site.audit_export import erasure  # noqa: F401  (registers where personal data may be)
