"""Many processes, every engine, random faults, for as long as there is time; then the checker."""
