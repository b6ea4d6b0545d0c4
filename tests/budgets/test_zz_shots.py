from datetime import UTC, datetime, timedelta
import os
from typing import Any
import pytest
from django.core.management import call_command
from django.db import connection
from agentcore_site.jobs.models import Job
from budgets.accounts import chain_open
from budgets.ledger import reserve, settle
from budgets.models import LedgerEntry, ModelPrice
from budgets.services import budget_set_limit
from tests.budgets.support import bill, hold
from tests.support.browser import browser
from tests.factories import PASSWORD

def test_shots(live_site: Any, adam: Any, agent: Any, acme: Any) -> None:
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    call_command("collectstatic", interactive=False, verbosity=0)
    now = datetime.now(UTC)
    budget_set_limit(adam, organization=acme, limit=45_000_000, note="for November")
    budget_set_limit(adam, organization=acme, agent_id=agent.id, limit=30_000_000)
    n = 0
    for j in range(4):
        job = Job.objects.create(organization=acme, kind="evaluation" if j == 3 else "training", title=f"Router with longer title {j}", created_by=adam)
        chain = chain_open(acme.id, agent_id=agent.id if j else None, job_id=job.id)
        for d in range(now.day):
            for k in range(2):
                n += 1
                amount = 150_000 + 40_000 * ((d * 7 + j * 3 + k) % 5)
                reserve(hold(chain, f"k{n}", amount + 50_000)); settle(f"k{n}", bill(amount))
                with connection.cursor() as c:
                    c.execute("ALTER TABLE budgets_ledgerentry DISABLE TRIGGER append_only")
                    ids = list(LedgerEntry.objects.order_by("-id").values_list("id", flat=True)[:2])
                    LedgerEntry.objects.filter(id__in=ids).update(at=now.replace(day=d + 1, hour=1 if d + 1 == now.day else 10, minute=k))
                    c.execute("ALTER TABLE budgets_ledgerentry ENABLE TRIGGER append_only")
    reserve(hold(chain, "held", 100_000))
    for m, i, o, free in (("gpt-4o-mini", 150_000, 600_000, False), ("openai/gpt-4o", 2_500_000, 10_000_000, False), ("qwen", 0, 0, True)):
        ModelPrice.objects.create(model=m, valid_from="2026-01-01", input=i, output=o, free=free, cached_input=i // 2 or None, source="price list")
    Job.objects.filter(id=chain.job_id).update(status="paused", status_reason="budget_exceeded")
    with browser() as chrome:
        for size, dark in (((1280, 900), "light"), ((390, 844), "dark"), ((390, 844), "light"), ((1280, 900), "dark")):
            page = chrome.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=dark)
            page.goto(f"{live_site.url}/sign-in/")
            page.fill("[name=username]", "adam"); page.fill("[name=password]", PASSWORD); page.click("text=Sign in")
            page.wait_for_url(f"{live_site.url}/")
            page.on("console", lambda m: print("CONSOLE", m.text[:300])); page.on("response", lambda r: print("RESP", r.status, r.url) if "limit" in r.url else None)
            for name, path in (("list", "/budgets/?by=day"), ("org", f"/budgets/{chain.organization_budget}/"), ("job", f"/budgets/{chain.job_budget}/"), ("prices", "/budgets/prices/?panel=gpt-4o-mini"), ("set", "/budgets/prices/set/?model=gpt-4o-mini"), ("settings", "/budgets/settings/"), ("new", "/budgets/new/"), ("chain", f"/budgets/of-job/{chain.job_id}/")):
                page.goto(f"{live_site.url}{path}")
                if name == "job":
                    page.fill("#id_limit", "120.5")
                    page.wait_for_selector("text=Set the limit to $120.50", timeout=4000)
                wide = page.evaluate("document.documentElement.scrollWidth")
                print(name, size, dark, "scrollWidth", wide)
                page.screenshot(path=f"/tmp/shots/{name}-{size[0]}-{dark}.png", full_page=True)
            page.close()
