"""Plans of the audit: its lines, and whether they are as they were written."""

from __future__ import annotations

from typing import Final

from indelible.core import audit
from indelible.core.clock import to_datetime
from indelible.core.limits import PAGE_ENTRIES_MAX
from indelible.core.operations import ReadAudit, ReadHead, StoredLine
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import check_count
from indelible.core.settings import check_session_id
from indelible.errors import FormatError
from indelible.model import AuditLine

# How often a session is read again that is being changed.
_ATTEMPTS_MAX: Final = 5


def read_lines(session: str, start: int = 0) -> Plan[list[StoredLine]]:
    """Read the lines of a session from a number on, page by page."""
    lines: list[StoredLine] = []
    while True:
        page = yield from perform(ReadAudit(session, start + len(lines), PAGE_ENTRIES_MAX))
        lines += page
        if len(page) < PAGE_ENTRIES_MAX:
            return lines


def read_audit_log(session_id: str, *, last: int | None) -> Plan[list[AuditLine]]:
    """Read the audit of a session, or its newest lines."""
    session = check_session_id(session_id)
    count, start = check_count(last, "last"), 0
    if count is not None:
        newest = yield from perform(ReadAudit(session, None, 1))
        start = max(0, newest[0].number + 1 - count) if newest else 0
    return [_build_line(session, line) for line in (yield from read_lines(session, start))]


def _build_line(session: str, line: StoredLine) -> AuditLine:
    try:
        content = audit.parse_line(line)
        at = to_datetime(content.at_ms)
    except (ValueError, TypeError, OverflowError):
        raise FormatError(
            f"line {line.number} of the audit of session {session!r} is damaged:"
            f" {line.text[:60]!r}",
            session=session,
        ) from None
    return AuditLine(
        number=line.number,
        at=at,
        actor=content.actor,
        change=content.change,
        count=content.total,
        version=content.version,
        hash=line.hash,
    )


def find_problems(session: str, key: bytes, head: str | None) -> Plan[list[str]]:
    """Return what is wrong with the audit of a session: as a chain, and compared with a hash."""
    lines, version = yield from _read_stable(session)
    problems: list[str] = []
    wrong = audit.find_wrong_line(key, session, lines)
    if wrong is not None:
        problems.append(
            f"line {wrong} of its audit was changed, moved or not written with this key; the lines"
            " before it are as they were written"
        )
    elif (between := _find_unaudited(lines, version)) is not None:
        problems.append(
            f"it was changed after line {between} of its audit by a store that was opened without"
            " audit"
        )
    if head is not None and all(line.hash != head for line in lines):
        problems.append(
            "its audit has no line with the given hash: lines up to it were changed or removed, or"
            " it is the hash of another session"
        )
    return problems


def _read_stable(session: str) -> Plan[tuple[list[StoredLine], str | None]]:
    """Read all lines and the version behind them; None for that if others keep adding lines."""
    for _ in range(_ATTEMPTS_MAX):
        lines = yield from read_lines(session)
        head = yield from perform(ReadHead(session))
        newest = yield from perform(ReadAudit(session, None, 1))
        if not newest or newest[0].number < len(lines):
            return lines, head.version
    return lines, None


def _find_unaudited(lines: list[StoredLine], version: str | None) -> int | None:
    """Return the first line after which the session was changed without a line."""
    contents = [audit.parse_line(line) for line in lines]
    following = [content.version for content in contents[1:]]
    if version is not None:
        following.append(version)
    # Without a version, nothing follows the newest line.
    for number, (content, after) in enumerate(zip(contents, following, strict=False)):
        predicted = audit.predict_version(content)
        # A session that has expired since is `new`, or says so in its version; a line that
        # removes it names none.
        if predicted is not None and after not in (predicted, f"{predicted}!", "new", ""):
            return number
    return None
