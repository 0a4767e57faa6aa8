"""`python -m examples.demo`: watch a naive store forget and indelible remember."""

import sys

INTERRUPTED = 130

if __name__ == "__main__":
    try:
        from rich.console import Console

        from examples.demo.story import run_demo

        sys.exit(run_demo(Console()))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
