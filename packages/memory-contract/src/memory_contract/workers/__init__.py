"""Threads, tasks and processes that run programs at the same time and record their calls."""
