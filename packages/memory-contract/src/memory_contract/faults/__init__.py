"""Fault injection: processes, clocks, the disk below SQLite, servers, and a proxy before them."""
