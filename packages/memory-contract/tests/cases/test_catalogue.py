"""The page of cases says what the book says."""

import re
import sys
from pathlib import Path

from memory_contract.adapter import CAPABILITIES
from memory_contract.cases.catalogue import all_cases, catalogue

PAGE = Path(__file__).parents[4] / "docs" / "cases.md"


def test_the_page_is_what_the_book_says_now():
    renew = f"{Path(sys.executable).name} -m memory_contract.cases.catalogue > docs/cases.md"
    assert PAGE.read_text("utf-8") == catalogue(), f"renew it: {renew}"


def test_every_case_stands_there_once_with_what_it_does_and_catches():
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.+?) \| (.+?) \|.*\|$", catalogue())
    cases = [each.name for each in all_cases()]
    assert [name for name, _, _ in rows if name in cases] == cases
    assert all(does.strip() and catches.strip() for _, does, catches in rows)


def test_every_capability_is_explained():
    page = catalogue()
    assert all(f"| `{name}` | {does} |" in page for name, does in CAPABILITIES.items())
