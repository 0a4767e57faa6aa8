"""From a trace to a test: what is written, and what is run."""
