"""The web server: uvicorn, with all its options, and a time limit for the arrival of requests.

``python -m agentcore_site.web_server agentcore_site.asgi:application --port 8000``
"""

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.main import main

HTTP_PROTOCOLS["auto"] = "agentcore_site.lib.timed_requests:TimedRequests"

if __name__ == "__main__":
    main()
