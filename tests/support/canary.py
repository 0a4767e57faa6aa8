"""A password that must never be seen: not on a screen, not in a file, not in an error."""

from urllib.parse import quote

# Long and odd enough to be in no file by chance.
CANARY = "c4nary-pa55word"
# Each holds the canary behind a character that has a meaning in URLs.
AWKWARD = [f"x{mark}{CANARY}" for mark in ("", "#", "?", "@", "/", ":", "&", "%", " ", "'", '"')]
ENCODED = [quote(each, safe="") for each in AWKWARD]


def files_with_canary(folder):
    """The files below a folder that hold the canary."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if CANARY.encode() in path.read_bytes()]


def watch(runner):
    """Let every command that a runner of commands invokes be searched for the canary."""
    invoke = runner.invoke

    def invoke_watched(self, *args, **options):
        result = invoke(self, *args, **options)
        assert CANARY not in result.output
        return result

    runner.invoke = invoke_watched
