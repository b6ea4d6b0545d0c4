"""The ASGI application: HTTP through Django, websockets through Channels."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402  (after Django is set up)
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402

from agentcore_site.routing import websocket_urlpatterns  # noqa: E402
from agentcore_site.secret_key import require_same_or_exit  # noqa: E402
from experiences.ace.fast import FastContexts  # noqa: E402

require_same_or_exit()
application = ProtocolTypeRouter(
    {
        "http": FastContexts(django_application),
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
