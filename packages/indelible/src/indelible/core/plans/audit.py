"""Plans of the audit: its lines, and whether they are as they were written."""

from __future__ import annotations

from indelible.core import audit
from indelible.core.clock import to_datetime
from indelible.core.limits import PAGE_ENTRIES_MAX
from indelible.core.operations import ReadAudit, ReadHead, StoredLine
from indelible.core.plan import Plan, perform
from indelible.core.settings import check_session_id
from indelible.errors import FormatError
from indelible.model import AuditLine


def read_lines(session: str) -> Plan[list[StoredLine]]:
    """Read all lines of a session, page by page."""
    lines: list[StoredLine] = []
    while True:
        page = yield from perform(ReadAudit(session, len(lines), PAGE_ENTRIES_MAX))
        lines += page
        if len(page) < PAGE_ENTRIES_MAX:
            return lines


def read_audit_log(session_id: str) -> Plan[list[AuditLine]]:
    """Read the audit of a session."""
    session = check_session_id(session_id)
    return [_build_line(session, line) for line in (yield from read_lines(session))]


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
    lines = yield from read_lines(session)
    problems: list[str] = []
    wrong = audit.find_wrong_line(key, session, lines)
    if wrong is not None:
        problems.append(
            f"line {wrong} of its audit was changed, moved or not written with this key; the lines"
            " before it are as they were written"
        )
    elif (between := (yield from _find_unaudited(session, lines))) is not None:
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


def _find_unaudited(session: str, lines: list[StoredLine]) -> Plan[int | None]:
    """Return the first line after which the session was changed without a line."""
    if not lines:
        return None
    contents = [audit.parse_line(line) for line in lines]
    head = yield from perform(ReadHead(session))
    following = [content.version for content in contents[1:]] + [head.version]
    for number, (content, version) in enumerate(zip(contents, following, strict=True)):
        predicted = audit.predict_version(content)
        # A session that has expired since is `new`, or says so in its version; a line that
        # removes it names none.
        if predicted is not None and version not in (predicted, f"{predicted}!", "new", ""):
            return number
    return None
