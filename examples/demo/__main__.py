"""`python -m examples.demo`: watch a naive store forget and indelible remember."""

import sys

from rich.console import Console

from examples.demo.story import run_demo

INTERRUPTED = 130

if __name__ == "__main__":
    try:
        sys.exit(run_demo(Console()))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
