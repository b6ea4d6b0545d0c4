"""Console pages of what is in production."""

from django.urls import path

from serving import views

app_name = "serving"
urlpatterns = [
    path("releases/", views.releases, name="releases"),
    path("releases/<uuid:release_id>/", views.release, name="release"),
    path("releases/<uuid:release_id>/json/", views.release_json, name="release_json"),
    path("agents/<uuid:agent_id>/releases/make/", views.make, name="make"),
    path("agents/<uuid:agent_id>/roll-back/", views.roll_back, name="roll_back"),
    path("checkpoints/<uuid:checkpoint_id>/promote/", views.promote, name="promote"),
]
