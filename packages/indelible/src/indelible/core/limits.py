"""All limits, with their reasons. Exceeding one raises a `LimitError`; nothing is written."""

from typing import Final

# A session id is part of every key and index; half a KiB holds any tenant/user/thread path.
SESSION_ID_BYTES_MAX: Final = 512
# A caller's idempotency key; a request id or a hash fits many times over.
KEY_BYTES_MAX: Final = 512
# A version that a caller hands back; engines make far shorter ones.
VERSION_BYTES_MAX: Final = 512
# A role is one word.
ROLE_CHARS_MAX: Final = 64
# A snapshot's label is for people.
LABEL_BYTES_MAX: Final = 512
# Metadata is read whenever the session is.
METADATA_BYTES_MAX: Final = 64 * 1024

# Twice the largest text that we promise (16 MiB) and a little: quotes take two bytes in JSON.
ENTRY_BYTES_MAX: Final = 33 * 1024 * 1024
# A stored row: an entry with its key and call ids, which JSON may make several times as long. A
# longer one was not written by us, and is not read into memory.
ROW_BYTES_MAX: Final = 4 * ENTRY_BYTES_MAX
# A batch is one transaction and one network message.
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
BATCH_ENTRIES_MAX: Final = 1000
# JSON parsers differ in how deep a nesting they can read.
JSON_DEPTH_MAX: Final = 100
# Python's default limit for parsing integers.
INTEGER_DIGITS_MAX: Final = 4300

# The position shares a 64-bit row id with the session's number.
LOG_ENTRIES_MAX: Final = 2**32
# Entries that one search reads where no index has their words: this is some seconds of work.
SEARCH_ENTRIES_MAX: Final = 100_000
# A word is left out of a search if more than this share of the entries have it, and others are
# rarer: it costs most and says least. In a scope of fewer entries all words are used.
COMMON_WORD_SHARE: Final = 0.05
COMMON_WORD_ENTRIES: Final = 5_000
# The best matches by the index that are read and ranked with their neighbours.
SEARCH_MATCHES: Final = 64
# Entries that are indexed in one transaction.
INDEX_PAGE: Final = 1000
# Results of a search, the number of those that are skipped, and neighbours of each.
SEARCH_HITS_MAX: Final = 1000
# Places of the index of items that are read at once.
ITEM_PAGE: Final = 256
# The same for the first look at an item: most often its newest entry is visible.
ITEMS_FIRST: Final = 4

# More consecutive missing entries are reported as one problem: one flipped bit in a row id can make
# a log look longer by millions.
MISSING_NAMED_MAX: Final = 100_000

# A page is held in memory.
PAGE_ENTRIES_MAX: Final = 1000
PAGE_ENTRIES_DEFAULT: Final = 200

# Sessions that `risks(sessions=True)` examines: a few seconds on any engine.
RISK_SESSIONS_MAX: Final = 10_000

# The default of `vacuum`: changes within this time can still be undone.
UNDO_WINDOW_S: Final = 7 * 24 * 3600
# A copy that has not been finished for this long has no copier any more.
STAGE_ABANDONED_S: Final = 24 * 3600

# How many view changes can be undone, one after the other.
JOURNAL_MAX: Final = 100
# The journal lines that hold them: each of them, and its undo.
JOURNAL_LINES_MAX: Final = 2 * JOURNAL_MAX
# One line of an export: an entry in base64 and its tool calls once more beside it fit three times.
EXPORT_LINE_CHARS_MAX: Final = 3 * ENTRY_BYTES_MAX
# The snapshots of an imported session arrive in one step, in memory.
IMPORT_SNAPSHOTS_MAX: Final = 100_000
# The same for the lines of its audit: a session that changes once a minute for two years.
IMPORT_AUDIT_MAX: Final = 1_000_000
# Counters of an imported session: what a double holds exactly, as Redis computes with.
COUNTER_MAX: Final = 10**12
# The last moment that a date can say: the end of the year 9999.
MILLISECONDS_MAX: Final = 253_402_300_799_999

# A key is remembered at least for this many of the session's newest appends.
KEYS_KEPT: Final = 10_000
# A session that ran out says `expired`, not `new`, for this long.
EXPIRED_KNOWN_S: Final = 30 * 24 * 3600
# Sessions are indexed by their last activity in steps of a minute: most appends then need not write
# to that index, and few sessions of one step remain to be ordered. Migrations have this number too.
ACTIVITY_STEP_MS: Final = 60_000
# A century: later dates overflow.
TTL_S_MAX: Final = 100 * 365 * 24 * 3600

# Attempts at a view change while others change the view too. Appends do not count as such.
VIEW_ATTEMPTS_MAX: Final = 50
# How often an append, a view change or a snapshot is sent in all if its outcome is unknown.
APPEND_ATTEMPTS_MAX: Final = 3

# How often writes check whether the file was moved or deleted. A write in between is lost like one
# that came just before the file was moved.
MOVED_CHECK_S: Final = 0.001

# How long a write on SQLite waits for other writers, unless told otherwise.
BUSY_TIMEOUT_S: Final = 5.0
# How long a call to a server may take, with all its retries, unless told otherwise.
TIMEOUT_S: Final = 10.0
# How long opening a store tries to find a server at its address. A wrong host or port takes longer;
# with the start of a command, the error stays under two seconds. A slow server is waited for.
FIRST_CONTACT_S: Final = 1.5
# A deadline beyond an hour is a mistake, and past some weeks timers overflow.
TIMEOUT_S_MAX: Final = 3600.0

# A model reads the whole answer of a tool, and pays for it: this is about 12,000 tokens.
MCP_ANSWER_CHARS_MAX: Final = 50_000
# One long message must not use up the whole answer.
MCP_TEXT_CHARS_MAX: Final = 10_000
# Messages, matches or snapshots of one answer.
MCP_ITEMS_MAX: Final = 200

# What an engine-free estimate takes one token to be; English text runs at about four.
BYTES_PER_TOKEN: Final = 4

# How long a thread waits for another before it looks again by itself. A thread that was interrupted
# by Ctrl-C may not have told the others that it is done.
LOOK_AGAIN_S: Final = 0.25
