"""``python -m tests.performance.lighthouse``: what Lighthouse says of a job, a trajectory and the launch page.

It asks a site that runs with the demo's people (``manage.py up --demo``) and has at least one job::

    python -m tests.performance.lighthouse --site http://127.0.0.1:8000 --password <olivia's>

Lighthouse comes from npm, at its pinned version, unless ``--lighthouse`` names one; Chromium is the one of the browser
tests. Both its devices are asked, the phone with its slowed network and processor. Exits with 1 where accessibility is
below 100 or performance below 95.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from typing import Any, Final

import httpx

from tests.support.browser import ARGUMENTS, chromium

PINNED: Final = "npx --yes lighthouse@12.8.2"
CATEGORIES: Final = ("performance", "accessibility", "best-practices")
WANTED: Final = {"performance": 95, "accessibility": 100}
DEVICES: Final = {"desktop": ["--preset=desktop"], "phone": []}


def signed_in(site: str, user: str, password: str) -> httpx.Client:
    client = httpx.Client(base_url=site, follow_redirects=True)
    form = client.get("/sign-in/")
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)
    assert token is not None
    sent = {"username": user, "password": password, "csrfmiddlewaretoken": token[1]}
    answer = client.post("/sign-in/", data=sent, headers={"Referer": f"{site}/sign-in/"})
    assert answer.url.path != "/sign-in/", "the name or the password is wrong"
    return client


def pages(client: httpx.Client) -> dict[str, str]:
    """Of the newest job and one of its trajectories."""
    job = re.search(r'href="(/jobs/[0-9a-f-]{36}/)"', client.get("/jobs/").text)
    assert job is not None, "the site has no job: launch one first"
    trajectory = re.search(r'href="(/trajectories/[0-9a-f-]{36}/)"', client.get("/trajectories/").text)
    assert trajectory is not None, "the site has no trajectory"
    return {"job": job[1], "trajectory": trajectory[1], "launch": "/launch/"}


def asked(command: str, address: str, cookie: str, device: str) -> dict[str, Any]:
    """Lighthouse's report of one page."""
    call = [
        *shlex.split(command), address, "--output=json", "--quiet", f"--only-categories={','.join(CATEGORIES)}",
        f"--extra-headers={json.dumps({'Cookie': cookie})}",
        f"--chrome-flags=--headless=new {' '.join(ARGUMENTS)}", *DEVICES[device],
    ]  # fmt: skip
    done = subprocess.run(
        call, capture_output=True, text=True, check=True, env=os.environ | {"CHROME_PATH": chromium()}
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def below(report: dict[str, Any]) -> list[str]:
    """The audits that cost points, with their values."""
    found = []
    for category in report["categories"].values():
        for one in category["auditRefs"]:
            audit = report["audits"][one["id"]]
            if one["weight"] and audit["score"] is not None and audit["score"] < 0.9:
                found.append(f"{audit['id']} {audit.get('displayValue', '')}".strip())
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", default="http://127.0.0.1:8000")
    parser.add_argument("--user", default="olivia")
    parser.add_argument("--password", required=True)
    parser.add_argument("--lighthouse", default=PINNED)
    given = parser.parse_args(arguments)
    client = signed_in(given.site, given.user, given.password)
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    missed = False
    for name, path in pages(client).items():
        for device in DEVICES:
            report = asked(given.lighthouse, f"{given.site}{path}", cookie, device)
            scores = {key: round(100 * (one["score"] or 0)) for key, one in report["categories"].items()}
            missed |= any(scores[key] < least for key, least in WANTED.items())
            print(f"{name:<11}{device:<9}{scores}  {'; '.join(below(report))}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
