"""Console pages of what is in production."""

from django.urls import path

from serving import views
from serving.traces import views as traces

app_name = "serving"
urlpatterns = [
    path("releases/", views.releases, name="releases"),
    path("releases/<uuid:release_id>/", views.release, name="release"),
    path("releases/<uuid:release_id>/json/", views.release_json, name="release_json"),
    path("traces/", traces.traces, name="traces"),
    path("traces/<uuid:production_trace_id>/", traces.trace, name="trace"),
    path("traces/<uuid:production_trace_id>/json/", traces.trace_json, name="trace_json"),
    path("traces/<uuid:production_trace_id>/feedback/", traces.give, name="trace_feedback"),
    path("releases/<uuid:release_id>/tensorzero/", views.release_tensorzero, name="release_tensorzero"),
    path("agents/<uuid:agent_id>/releases/make/", views.make, name="make"),
    path("agents/<uuid:agent_id>/roll-back/", views.roll_back, name="roll_back"),
    path("checkpoints/<uuid:checkpoint_id>/promote/", views.promote, name="promote"),
]
