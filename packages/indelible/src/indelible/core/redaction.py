"""Removes passwords from URLs, keyword DSNs, and text that contains them.

No password may get through: of an ambiguous URL, too much is hidden rather than too little.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

HIDDEN = "***"

# A URL of a server that was parsed as a path, which leaves one slash, or is misspelled.
_DAMAGED_URL = re.compile(r"(?is)(.*?(?:postgres(?:ql)?|rediss?)(?:\+\w+)?)(:/?)(?!/)(.*)")

_BLANKS = re.compile(r"(\s+)")
_PARAMETER_OF_URL = re.compile(r"(?s)([?&])([^=&?]*)=([^&]*)")
_PARAMETER_IN_TEXT = re.compile(r"([?&])([^\s=&?]*)=([^\s&]*)")
_SECRET_NAME = re.compile(r"(?i)\w*(?:password|passwd|secret)|pwd")
# `password=…` of a keyword DSN: quoted, or up to a blank that is not escaped.
_KEYWORD = re.compile(
    r"(?i)(?<![?&\w])(\w*(?:password|passwd|secret)|pwd)(\s*=\s*)"
    r"('(?:[^'\\]|\\.)*'?|(?:\\.|[^\s\\])+)"
)
_LIBPQ_KEYWORD = re.compile(
    r"(?i)(?:^|[\s;])(?:host|hostaddr|port|dbname|password|passwd|pwd|passfile|service|sslmode|target_session_attrs)"
    r"\s*="
)


def redact(text: str) -> str:
    """Hide the passwords of every URL and keyword DSN in a text."""
    if "@" in text:
        # Word by word, since a URL contains no blank.
        text = "".join(map(_hide_userinfo, _BLANKS.split(text)))
    text = _PARAMETER_IN_TEXT.sub(_hide_parameter, text)
    return _KEYWORD.sub(rf"\1\2{HIDDEN}", text)


def redact_url(url: str) -> str:
    """Hide the password of a URL or a keyword DSN that is the whole text."""
    if "://" not in url:
        return redact(_hide_userinfo(url))
    try:
        urlsplit(url)
    except ValueError:
        # Invalid: the password could be anywhere.
        return url.partition("://")[0] + "://…"
    url = _hide_userinfo(url)
    return _PARAMETER_OF_URL.sub(_hide_parameter, url)


def has_password(url: str) -> bool:
    """Return whether a URL or a keyword DSN contains a password."""
    return redact_url(url) != url


def is_keyword_dsn(text: str) -> bool:
    """Return whether a text is a connection string of libpq, such as `host=db password=…`."""
    return "://" not in text and _LIBPQ_KEYWORD.search(text) is not None


def _hide_userinfo(word: str) -> str:
    """Hide all from the first colon to the last @: a password may contain / ? # @ unencoded."""
    scheme, mark, rest = word.partition("://")
    if not mark and (damaged := _DAMAGED_URL.match(word)):
        scheme, mark, rest = damaged[1], damaged[2], damaged[3]
    userinfo, at, place = rest.rpartition("@")
    user, colon, _ = userinfo.partition(":")
    return f"{scheme}{mark}{user}:{HIDDEN}{at}{place}" if colon else word


def _hide_parameter(found: re.Match[str]) -> str:
    # Names may be percent-encoded, too.
    secret = _SECRET_NAME.fullmatch(unquote(found[2])) is not None
    return f"{found[1]}{found[2]}={HIDDEN}" if secret else found[0]
