"""Real servers on loopback ports, started, frozen, killed and ended by their process id."""
