from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "events"

    def ready(self) -> None:
        from events import erasure, job_kind, retention  # noqa: F401  (register places of personal data, and the kind)
