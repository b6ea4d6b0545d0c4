from django.apps import AppConfig


class EncryptionConfig(AppConfig):
    name = "agentcore_site.encryption"
    label = "encryption"
    verbose_name = "Encryption at rest"

    def ready(self) -> None:
        from agentcore_site.encryption import job_kind, transit  # noqa: F401  (register themselves)
