"""Golden numbers: made by ``make_golden`` with torch and TRL, compared by ``test_golden``."""

from pathlib import Path

GOLDEN = Path(__file__).with_name("golden.json")
