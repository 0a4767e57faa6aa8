"""The demo: a naive store and indelible in the same three situations, with real processes."""
