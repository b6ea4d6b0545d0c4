"""Console pages of experiences."""

from django.urls import path

from experiences.views import agents, endpoints, library, packs, toolservers, trajectories

app_name = "experiences"
urlpatterns = [
    path("agents/new/", agents.new, name="agent_new"),
    path("agents/<uuid:agent_id>/edit/", agents.edit, name="agent_edit"),
    path("agents/<uuid:agent_id>/archive/", agents.archive, name="agent_archive"),
    path("agents/options/", agents.options, name="agent_options"),
    path("endpoints/", endpoints.endpoints, name="endpoints"),
    path("endpoints/new/", endpoints.new, name="endpoint_new"),
    path("endpoints/test/", endpoints.test, name="endpoint_test"),
    path("endpoints/<uuid:endpoint_id>/", endpoints.edit, name="endpoint_edit"),
    path("endpoints/<uuid:endpoint_id>/archive/", endpoints.archive, name="endpoint_archive"),
    path("tool-servers/", toolservers.tool_servers, name="tool_servers"),
    path("tool-servers/new/", toolservers.new, name="tool_server_new"),
    path("tool-servers/<uuid:server_id>/", toolservers.edit, name="tool_server"),
    path("tool-servers/<uuid:server_id>/archive/", toolservers.archive, name="tool_server_archive"),
    path("tool-servers/<uuid:server_id>/offer/", toolservers.offer, name="tool_server_offer"),
    path("experiences/", library.library, name="library"),
    path("experiences/<uuid:experience_id>/", library.experience, name="experience"),
    path("experiences/<uuid:experience_id>/edit/", library.edit, name="experience_edit"),
    path("experiences/<uuid:experience_id>/restore/", library.restore, name="experience_restore"),
    path("experiences/<uuid:experience_id>/prune/", library.prune, name="experience_prune"),
    path("experiences/<uuid:experience_id>/quarantine/", library.quarantine, name="experience_quarantine"),
    path("experiences/<uuid:experience_id>/approve/", library.approve, name="experience_approve"),
    path("prompt-packs/", packs.prompt_packs, name="prompt_packs"),
    path("prompt-packs/new/", packs.new, name="prompt_pack_new"),
    path("prompt-packs/<uuid:pack_id>/", packs.edit, name="prompt_pack"),
    path("prompt-packs/<uuid:pack_id>/archive/", packs.archive, name="prompt_pack_archive"),
    path("trajectories/", trajectories.trajectories, name="trajectories"),
    path("trajectories/compare/", trajectories.compare, name="compare"),
    path("trajectories/<uuid:trajectory_id>/", trajectories.trajectory, name="trajectory"),
    path("trajectories/<uuid:trajectory_id>/steps/", trajectories.steps, name="steps"),
    path("trajectories/<uuid:trajectory_id>/json/", trajectories.raw, name="raw"),
    path("jobs/<uuid:job_id>/groups/<int:iteration>/<int:scenario>/", trajectories.group, name="group"),
]
