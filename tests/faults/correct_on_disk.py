"""Correct stores on the standard library's SQLite, with what each claims to survive."""

from memory_contract.goldfish.registry import build_adapter
from tests.support.disk_goldfish import WalFull


class JournalTruncated(WalFull):
    """Commits by truncating and syncing its rollback journal."""

    settings = ("TRUNCATE", "FULL")


class JournalExtra(WalFull):
    """Commits by deleting its rollback journal and syncing the folder."""

    settings = ("DELETE", "EXTRA")


class WalNormal(WalFull):
    """Syncs its write-ahead log now and then, and claims no more than that."""

    settings = ("WAL", "NORMAL")


CORRECT_ON_DISK = {
    "wal_full": build_adapter(WalFull, "wal_full", durability="power"),
    "journal_truncated": build_adapter(JournalTruncated, "journal_truncated", durability="power"),
    "journal_extra": build_adapter(JournalExtra, "journal_extra", durability="power"),
    "wal_normal": build_adapter(WalNormal, "wal_normal", durability="process"),
}
