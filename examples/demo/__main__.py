"""`python -m examples.demo`: watch a naive store forget and indelible remember."""

import sys

from rich.console import Console

from examples.demo.story import run_demo

if __name__ == "__main__":
    sys.exit(run_demo(Console()))
