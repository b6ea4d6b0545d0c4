"""Checks a compose file against the specification: keys, types, and that what a service names is there.

As a program: the file's name is its argument.
"""

import json
import re
import sys

import compose_spec
import yaml

with open(sys.argv[1], encoding="utf-8") as source:
    filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", source.read())  # with nothing set
content = yaml.safe_load(filled)  # merges what is shared, which the parser does not know
plain = {name: part for name, part in content.items() if not name.startswith("x-")}
compose_spec.PyCompose.from_json(json.dumps(plain))
for kind in ("secrets", "volumes"):
    used = {
        str(one).partition(":")[0]
        for service in plain["services"].values()
        for one in service.get(kind, [])
        if not str(one).startswith((".", "/"))
    }
    if used != set(plain[kind]):
        sys.exit(f"{sys.argv[1]}: {kind} used and named differ in {sorted(used ^ set(plain[kind]))}")
for name, service in plain["services"].items():
    if unknown := set(service.get("depends_on", {})) - set(plain["services"]):
        sys.exit(f"{sys.argv[1]}: {name} depends on {sorted(unknown)}")
