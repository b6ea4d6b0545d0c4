"""The WSGI application, for servers without websockets."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")

application = get_wsgi_application()
