from django.apps import AppConfig


class EmbeddedConfig(AppConfig):
    name = "agentcore_site.embedded"
    label = "embedded"
    verbose_name = "Embedded services"
