from django.apps import AppConfig


class WarehouseConfig(AppConfig):
    name = "warehouse"

    def ready(self) -> None:
        from warehouse import erasure, health  # noqa: F401  (register places of personal data, and a check)
