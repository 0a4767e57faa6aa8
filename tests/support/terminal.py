"""Commands as a person sees them, at a terminal."""

import os
import pty
import subprocess
import sys
import termios

from tests.support.transcripts import MODULES, environment

QUESTION = b"Go on? [y/N] "


def at_a_terminal(command, *arguments, answer=""):
    """Run a command with stdin and stderr on a terminal; what it showed there, and its code."""
    ours, theirs = pty.openpty()
    keep_output_on_signals(theirs)
    process = subprocess.Popen(
        [sys.executable, "-c", AT_ITS_OWN_TERMINAL, MODULES[command.program], *arguments],
        cwd=command.folder,
        env=environment(TERM="xterm"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while answer and QUESTION not in shown:
        shown += os.read(ours, 65536)
    os.write(ours, answer.encode())
    out, _ = process.communicate(timeout=240)
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            # The other side is closed: that was all.
            break
    os.close(ours)
    return process.returncode, out.decode(), shown.decode()


def keep_output_on_signals(terminal):
    """Ctrl-C makes a terminal throw away what it has not shown yet, a quick answer too."""
    settings = termios.tcgetattr(terminal)
    settings[LOCAL_FLAGS] |= termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


LOCAL_FLAGS = 3


# Ctrl-C reaches who the terminal belongs to.
# A shell lets what it runs in the background ignore it: then so would the command.
AT_ITS_OWN_TERMINAL = """
import fcntl, signal, termios
signal.signal(signal.SIGINT, signal.default_int_handler)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import runpy, sys
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__")
"""
