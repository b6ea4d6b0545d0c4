from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "events"

    def ready(self) -> None:
        from events import erasure  # noqa: F401  (registers where personal data may stand)
