from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "agentcore_site.audit"
    label = "audit"
    verbose_name = "Audit"
