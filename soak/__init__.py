"""Writes to every engine from many processes under random faults, then runs the checker."""
