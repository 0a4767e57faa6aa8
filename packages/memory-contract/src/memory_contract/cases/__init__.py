"""The cases: every one is a promise that real stores broke. A gate is a group of them."""
