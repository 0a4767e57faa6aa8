"""The kit on the stores that frameworks ship, and on indelible's: a page to compare them on."""
