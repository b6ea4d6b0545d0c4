"""Prices: dated, an organisation's own first, loaded from files, refused where unknown."""

from __future__ import annotations

import io
import json
import uuid
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Forbidden, Invalid, Missing
from agentcore_site.tenancy.models import Organization
from budgets.meter_port import PriceBook
from budgets.metering.price_book import DatabasePriceBook
from budgets.models import ModelPrice
from budgets.presenters.price_list import ListAge, list_age, price_changes
from budgets.prices.formats import book
from budgets.prices.loading import SEED, parse, prices_load
from budgets.pricing import Price, UnknownPrice
from budgets.selectors import prices_visible
from budgets.services import price_set

pytestmark = pytest.mark.django_db

DAY = date(2026, 1, 1)
LITELLM = {
    "sample_spec": {"input_cost_per_token": 0.0, "mode": "one of chat, embedding"},
    "gpt-x": {"mode": "chat", "input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05,
              "cache_read_input_token_cost": 1.25e-06, "source": "https://example.com/prices"},
    "tiered": {"input_cost_per_token": 1.25e-06, "input_cost_per_token_above_200k_tokens": 2.5e-06,
               "output_cost_per_token": 1e-05, "output_cost_per_reasoning_token": 3e-05,
               "input_cost_per_token_priority": 9e-05},
    "fraction": {"input_cost_per_token": 1.00000000000001e-07, "output_cost_per_token": 0, "mode": "completion"},
    "per-request": {"input_cost_per_token": 0, "output_cost_per_token": 0, "input_cost_per_request": 0.005},
    "embedder": {"mode": "embedding", "input_cost_per_token": 1e-07, "output_cost_per_token": 0.0},
    "nothing": {"mode": "chat", "input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
    "halves": {"mode": "chat", "input_cost_per_token": 1e-06},
    "words": {"mode": "chat", "input_cost_per_token": "1e-06", "output_cost_per_token": 1e-06},
    "negative": {"mode": "chat", "input_cost_per_token": -1e-06, "output_cost_per_token": 1e-06},
    "huge": {"mode": "chat", "input_cost_per_token": 1e300, "output_cost_per_token": 1e-06},
    "list": [],
}  # fmt: skip


def load(value: Any, **extra: Any) -> Any:
    return prices_load(json.dumps(value).encode(), name="some.json", valid_from=extra.pop("day", DAY), **extra)


def row(model: str) -> tuple[int, int | None, int, int]:
    found = ModelPrice.objects.get(model=model)
    return found.input_micros, found.cached_input_micros, found.output_micros, found.per_call_micros


def test_loader_reads_the_format_of_litellm_exactly() -> None:
    loaded = load(LITELLM)
    assert loaded.new == ["gpt-x", "tiered", "fraction", "per-request"]
    assert row("gpt-x") == (2_500_000, 1_250_000, 10_000_000, 0)
    assert row("tiered") == (1_250_000, None, 10_000_000, 0)
    tiered = ModelPrice.objects.get(model="tiered")
    assert tiered.rates == {"reasoning_micros": 30_000_000}
    tier = {"above_tokens": 200_000, "input_micros": 2_500_000, "output_micros": 10_000_000, "rates": tiered.rates}
    assert tiered.tiers == [tier]  # and none of the priority processing
    assert row("fraction") == (100_001, None, 0, 0)  # rounded up
    assert row("per-request") == (0, None, 0, 5_000)
    assert ModelPrice.objects.get(model="gpt-x").source == "https://example.com/prices"
    assert ModelPrice.objects.get(model="tiered").source == "LiteLLM: some.json"


def test_loader_gives_a_reason_for_a_skipped_model() -> None:
    skipped = load(LITELLM).skipped
    assert set(skipped) == {"embedder", "nothing", "halves", "words", "negative", "huge", "list"}
    assert "embedding" in skipped["embedder"] and "declare it free" in skipped["nothing"]
    assert skipped["halves"] == skipped["words"] == "the price of a token in or out is missing or no number"
    assert skipped["negative"] == skipped["huge"] == "a price is negative or beyond reason"


def test_the_same_file_twice_changes_nothing_and_a_new_price_is_a_new_row() -> None:
    load(LITELLM)
    again = load(LITELLM, day=date(2026, 2, 1))
    assert (again.new, again.changed, len(again.same)) == ([], [], 4)
    dearer = {"gpt-x": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1e-05}}
    assert load(dearer, day=date(2026, 3, 1)).changed == ["gpt-x"]
    assert [one.input_micros for one in ModelPrice.objects.filter(model="gpt-x")] == [3_000_000, 2_500_000]
    assert load({"gpt-x": dearer["gpt-x"] | {"output_cost_per_token": 2e-05}}, day=date(2026, 3, 1)).changed
    assert ModelPrice.objects.filter(model="gpt-x").count() == 2  # the same day was corrected
    assert AuditEvent.objects.filter(action="prices.loaded").count() == 3


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{", b'{"a": NaN}', b'"x"', b'{"providers": [{}], "as_of": "2025-01-01"}', b'{"providers": []}'],
)
def test_loader_refuses_what_is_no_price_file(raw: bytes) -> None:
    with pytest.raises(Invalid):
        prices_load(raw, name="x.json", valid_from=DAY)
    assert not ModelPrice.objects.exists()


def test_the_seed_holds_common_models_with_source_and_date() -> None:
    seed = json.loads(SEED.read_text())
    assert "Approximate" in seed["note"]
    lines = list(parse(SEED.read_bytes(), name="prices.json"))
    assert len(lines) > 80 and [line for line in lines if line.why] == []
    assert len({line.model for line in lines}) == len(lines)
    assert all(line.valid_from == date.fromisoformat(seed["as_of"]) and "approximate" in line.source for line in lines)
    for line in lines:  # a price per token instead of per million, or the other way round, would be seen
        assert Decimal("0.01") <= Decimal(line.output_micros) / 10**6 <= 100, line
        assert line.input_micros <= line.output_micros and (line.cached_input_micros or 0) <= line.input_micros, line
    assert {"gpt-4o-mini", "claude-3-5-haiku-20241022", "gemini-2.5-flash", "mistral-small-latest", "deepseek-chat",
            "meta-llama/Llama-3.3-70B-Instruct-Turbo"} <= {line.model for line in lines}  # fmt: skip


def test_the_command_loads_the_seed_or_a_file_and_reports(tmp_path: Path, acme: Organization) -> None:
    def said(*args: str) -> str:
        out = io.StringIO()
        call_command("load_prices", *args, stdout=out)
        return out.getvalue()

    first = said()
    assert "prices.json: " in first and "genai-prices: " in first
    assert said().startswith("prices.json: 0 new, 0 changed,")  # and the book is not read again
    path = tmp_path / "litellm.json"
    path.write_text(json.dumps(LITELLM))
    report = said(str(path), "--from", "2026-02-01", "--organization", "acme")
    assert report.startswith("litellm.json: 4 new, 0 changed, 0 unchanged, 0 kept, 7 skipped.")
    assert "skipped 2: a price is negative or beyond reason (negative …)" in report
    assert ModelPrice.objects.filter(organization=acme, valid_from=date(2026, 2, 1)).count() == 4
    with pytest.raises(CommandError, match="can't be read"):
        said(str(tmp_path / "nothing.json"))
    with pytest.raises(CommandError, match="no organisation"):
        said("--organization", "nobody")
    path.write_text("{")
    with pytest.raises(CommandError, match="no JSON"):
        said(str(path))


def test_the_book_knows_today_and_tomorrow_and_prefers_ones_own(acme: Organization, elsewhere: Organization) -> None:
    def price(day: date, amount: int, organization: Organization | None = None) -> None:
        ModelPrice.objects.create(
            organization=organization,
            model="m",
            valid_from=day,
            input_micros=amount,
            output_micros=amount,
            cached_input_micros=None,
        )

    today = date(2026, 5, 5)
    price(date(2026, 1, 1), 1)
    price(date(2026, 5, 5), 2)
    price(date(2026, 5, 6), 3)
    price(date(2026, 5, 7), 4, acme)

    def at(organization: Organization, day: date) -> int:
        rows = ModelPrice.objects.filter(organization__in=[organization]) | ModelPrice.objects.filter(organization=None)
        return DatabasePriceBook(rows, today=lambda: day).price("m").input_micros

    assert [at(acme, today.replace(day=day)) for day in (4, 5, 6, 7, 9)] == [1, 2, 3, 4, 4]
    assert at(elsewhere, date(2026, 5, 9)) == 3
    book: PriceBook = DatabasePriceBook.load(elsewhere.id)
    assert book.price("m") == Price("m", 3, 3) or date.today() < date(2026, 5, 6)


def test_an_unknown_model_is_refused_and_one_declared_free_costs_nothing(acme: Organization, adam: Any) -> None:
    price_set(adam, organization=acme, model="local", free=True)
    price_set(adam, organization=acme, model="later", input_micros=1, valid_from=date(2999, 1, 1))
    book = DatabasePriceBook.load(acme.id)
    assert book.price("local").free
    for model in ("other", "later", ""):
        with pytest.raises(UnknownPrice):
            book.price(model)


def test_admins_price_for_their_organisation_and_the_house_for_all(
    acme: Organization, elsewhere: Organization, adam: Any, olivia: Any, charlie: Any
) -> None:
    with pytest.raises(Forbidden):
        price_set(olivia, organization=acme, model="m", input_micros=1)
    with pytest.raises(Missing):
        price_set(charlie, organization=acme, model="m", input_micros=1)
    charlie.memberships.update(role="admin")
    with pytest.raises(Forbidden):
        price_set(charlie, model="m", input_micros=1)
    assert price_set(charlie, organization=elsewhere, model="m", input_micros=1).pk
    assert price_set(adam, model="m", input_micros=1).pk
    assert {one.organization for one in prices_visible(charlie)} == {elsewhere, None}
    assert {one.organization for one in prices_visible(olivia)} == {None}


def test_a_correction_keeps_the_former_price(acme: Organization, adam: Any) -> None:
    price_set(adam, organization=acme, model="m", input_micros=100, output_micros=200, valid_from=DAY)
    price_set(adam, organization=acme, model="m", input_micros=150, output_micros=200, valid_from=DAY, source="invoice")
    event = AuditEvent.objects.get(action="price.changed")
    assert (event.before["input"], event.after["input"], event.after["source"]) == (100, 150, "invoice")
    assert ModelPrice.objects.count() == 1


@pytest.mark.parametrize("wrong", [{}, {"input_micros": -1}, {"input_micros": 1, "cached_input_micros": -1}])
def test_loader_refuses_prices_that_make_no_sense(acme: Organization, adam: Any, wrong: dict[str, int]) -> None:
    with pytest.raises(Invalid):
        price_set(adam, organization=acme, model="m", **wrong)
    assert not ModelPrice.objects.exists()


def test_a_start_keeps_what_an_admin_corrected_and_the_report_says_so(adam: Any) -> None:
    def start(*args: str) -> str:
        out = io.StringIO()
        call_command("load_prices", *args, stdout=out)
        return out.getvalue()

    start()
    seeded = ModelPrice.objects.filter(model="gpt-4o-mini").earliest("valid_from")
    day = seeded.valid_from
    price_set(adam, model="gpt-4o-mini", input_micros=1, output_micros=2, valid_from=day, source=seeded.source)
    price_set(adam, model="gpt-4o", free=True, valid_from=day)
    report = start()
    assert "kept: edited by hand: gpt-4o-mini" in report and " 2 kept," in report
    assert row("gpt-4o-mini") == (1, None, 2, 0) and ModelPrice.objects.get(model="gpt-4o").free
    assert AuditEvent.objects.filter(action="prices.loaded").count() == 2  # the file and the book
    assert " 2 changed," in start("--replace")
    assert row("gpt-4o-mini")[0] == seeded.input_micros and " 0 kept," in start()
    texts = [one.text for one in price_changes(seeded)]  # newest first: the file, the admin
    assert "input $0.000001 → $0.15" in texts[0] and "input $0.15 → $0.000001" in texts[1]


def test_a_newer_seed_does_not_supersede_a_correction(adam: Any) -> None:
    file = {"m": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1e-05}}
    load(file, day=date(2026, 1, 1))
    price_set(adam, model="m", input_micros=5, output_micros=6, valid_from=date(2026, 2, 1))
    assert load({"m": file["m"] | {"input_cost_per_token": 4e-06}}, day=date(2026, 3, 1)).kept == ["m"]
    assert DatabasePriceBook(ModelPrice.objects.all(), today=lambda: date(2026, 4, 1)).price("m").input_micros == 5


def test_a_list_is_old_after_half_a_year(adam: Any) -> None:
    assert list_age() is None
    price_set(adam, model="mine", input_micros=5, output_micros=6, valid_from=date(2026, 5, 1))
    load({"m": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1e-05}}, day=DAY)
    assert list_age(today=date(2026, 6, 30)) == ListAge(DAY, False)
    assert list_age(today=date(2026, 7, 30)) == ListAge(DAY, True)


SUFFIXES = ("priority", "flex", "batches", "regional_priority")
TIERED = {
    "m": {
        "mode": "chat",
        "input_cost_per_token": 1.25e-06,
        "input_cost_per_token_above_200k_tokens": 2.5e-06,
        "output_cost_per_token": 1e-05,
        "output_cost_per_token_above_200k_tokens": 1.5e-05,
        "cache_read_input_token_cost": 1.25e-07,
        "cache_read_input_token_cost_above_200k_tokens": 2.5e-07,
        "cache_creation_input_token_cost": 1.5625e-06,
        "cache_creation_input_token_cost_above_1hr": 2.5e-06,
        "cache_creation_input_token_cost_above_200k_tokens": 3.125e-06,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 5e-06,
        "input_cost_per_audio_token": 4e-06,
        "output_cost_per_image_token": 3e-05,
        **{f"input_cost_per_token_above_200k_tokens_{one}": 9e-05 for one in SUFFIXES},
        **{f"output_cost_per_token_{one}": 9e-05 for one in SUFFIXES},
        **{f"cache_read_input_token_cost_{one}": 9e-05 for one in SUFFIXES},
    }
}


def test_tiers_are_rows_by_length_and_other_processing_is_none() -> None:
    load(TIERED)
    stored = ModelPrice.objects.get(model="m")
    assert stored.rates == {"cache_write_micros": 1_562_500, "cache_write_1h_micros": 2_500_000,
                            "audio_input_micros": 4_000_000, "image_output_micros": 30_000_000}  # fmt: skip
    assert stored.tiers == [
        {"above_tokens": 200_000, "input_micros": 2_500_000, "output_micros": 15_000_000,
         "rates": stored.rates | {"cached_input_micros": 250_000, "cache_write_micros": 3_125_000,
                                  "cache_write_1h_micros": 5_000_000}}
    ]  # fmt: skip
    assert load(TIERED).same == ["m"]
    assert DatabasePriceBook.load(uuid.uuid4()).price("m").tier_of(200_001).input_micros == 2_500_000


def test_ranges_of_a_file_are_tiers() -> None:
    ranges = [
        {"range": [0, 32000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06},
        {"range": [32000.0, 128000.0], "input_cost_per_token": 2e-06, "output_cost_per_token": 1e-05},
    ]
    load({"q": {"mode": "chat", "tiered_pricing": ranges}})
    stored = ModelPrice.objects.get(model="q")
    assert (stored.input_micros, stored.output_micros) == (1_000_000, 5_000_000)
    assert [(one["above_tokens"], one["input_micros"]) for one in stored.tiers] == [(32_000, 2_000_000)]


def test_an_own_price_keeps_the_tiers_in_force_unless_it_says_otherwise(acme: Organization, adam: Any) -> None:
    load(TIERED)
    kept = price_set(adam, organization=acme, model="m", input_micros=1, output_micros=2)
    assert kept.tiers[0]["above_tokens"] == 200_000 and kept.rates["cache_write_micros"] == 1_562_500
    assert price_set(adam, organization=acme, model="m", input_micros=1, output_micros=2, tiers=[]).tiers == []
    tier = {"above_tokens": 5, "input_micros": 1, "output_micros": 1, "rates": {}}
    for wrong in (
        [{"above_tokens": 5}],
        [tier, tier],
        [tier | {"rates": {"nonsense": 1}}],
        [tier | {"input_micros": -1}],
    ):
        with pytest.raises(Invalid, match="price is not right"):
            price_set(adam, organization=acme, model="m", input_micros=1, output_micros=2, tiers=wrong)


def test_the_book_has_tiers_cache_writes_and_days_and_reads_the_highest_hour() -> None:
    lines = {line.model: line for line in book(DAY)}
    assert all(not line.why for line in lines.values()) and len(lines) > 1_000
    gemini = lines["gemini-2.5-pro"]
    assert (gemini.input_micros, [one["input_micros"] for one in gemini.tiers]) == (1_250_000, [2_500_000])
    assert lines["claude-sonnet-4-5"].rates["cache_write_1h_micros"] == 6_000_000
    assert lines["deepseek-chat"].output_micros == 1_100_000
