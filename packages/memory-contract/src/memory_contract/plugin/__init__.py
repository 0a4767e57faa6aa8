"""What the pytest plugin loads once it is used: the contract as items, and as a class of tests."""
