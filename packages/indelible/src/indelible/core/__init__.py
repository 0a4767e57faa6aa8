"""What each operation does, without doing it: plans, rules, codec. No engine, no I/O."""
