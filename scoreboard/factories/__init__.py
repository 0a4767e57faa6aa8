"""A factory for each store of the scoreboard: used as its own documentation shows, in a line."""
