"""The image's health check: requests the readiness of ``up`` in the same container. A script without Django: 40 ms."""

import os
import sys
import urllib.request

try:
    urllib.request.urlopen(f"http://127.0.0.1:{os.environ['METRICS_PORT']}/health/ready", timeout=4).close()
except OSError as error:
    sys.exit(str(error))
