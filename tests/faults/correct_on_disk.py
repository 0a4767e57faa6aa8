"""Correct stores on the standard library's SQLite, with what each claims to survive."""

from memory_contract.goldfish.files import WalFull
from memory_contract.goldfish.registry import adapter_of


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
    "wal_full": adapter_of(WalFull, "wal_full", durability="power"),
    "journal_truncated": adapter_of(JournalTruncated, "journal_truncated", durability="power"),
    "journal_extra": adapter_of(JournalExtra, "journal_extra", durability="power"),
    "wal_normal": adapter_of(WalNormal, "wal_normal", durability="process"),
}
