"""Traces: record what an application does to its store, explain it, replay it, make it a test."""
