"""The public verbs as plans: generators that yield operations and return the result."""
