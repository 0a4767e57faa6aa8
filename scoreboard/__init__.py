"""The kit on the stores that frameworks ship, and on indelible's, as one page to compare them on."""
