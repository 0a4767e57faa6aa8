"""What the tests of all packages share: servers, stores, processes, interrupts."""
