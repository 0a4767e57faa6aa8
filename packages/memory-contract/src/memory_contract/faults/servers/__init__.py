"""Real servers on private loopback ports, started, frozen, killed and ended by their process id."""
