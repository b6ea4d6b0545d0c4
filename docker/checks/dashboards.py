"""Writes what the panels of Grafana ask of Prometheus as a file of rules, whose language promtool checks.

As a program: the dashboards' files are its arguments.
"""

import json
import sys
from pathlib import Path

rules = [
    {"record": "panel", "expr": target["expr"], "labels": {"of": f"{path} {panel['id']} {target['refId']}"}}
    for path in sys.argv[1:]
    for panel in json.loads(Path(path).read_text(encoding="utf-8"))["panels"]
    if panel["datasource"]["type"] == "prometheus"
    for target in panel["targets"]
]
json.dump({"groups": [{"name": "panels", "rules": rules}]}, sys.stdout)
