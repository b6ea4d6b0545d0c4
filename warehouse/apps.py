from django.apps import AppConfig


class WarehouseConfig(AppConfig):
    name = "warehouse"

    def ready(self) -> None:
        from warehouse import erasure  # noqa: F401  (says where personal data may stand)
