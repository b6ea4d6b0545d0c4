from django.apps import AppConfig


class NoticesConfig(AppConfig):
    name = "agentcore_site.notices"
    label = "notices"
    verbose_name = "Notices and webhooks"

    def ready(self) -> None:
        from agentcore_site.notices import erasure, retention  # noqa: F401  (they register themselves)
