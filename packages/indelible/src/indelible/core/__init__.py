"""The logic that all engines share: plans, rules, codec. No engine, no I/O."""
