"""A report as one HTML file that loads nothing: data, style and script are inside.

Names that a store returns may contain anything. In the file they are JSON that cannot end a script
element, and on the page they are set as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any, Final

from memory_contract.printable import escape_unseen
from memory_contract.report.page_data import build_page_data
from memory_contract.report.text import describe_target
from memory_contract.results import Report

_BLANK: Final = re.compile(r"\{\{(\w+)\}\}")


def to_page(report: Report) -> str:
    """The report as an HTML document."""
    style, script = _part("page.css"), _part("lanes.js") + _part("page.js")
    filled = {
        "policy": f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'",
        "title": html.escape(f"{report.verdict}: {escape_unseen(describe_target(report))}"),
        "style": style,
        "script": script,
        "data": _inert(build_page_data(report)),
    }
    # In one pass, so that placeholders in the data are not filled in.
    return _BLANK.sub(lambda found: filled[found[1]], _part("page.html"))


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    """The hash by which a content security policy allows a style or a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inert(value: Any) -> str:
    """JSON that cannot end a script element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
