"""The public verbs as plans: they yield steps of the waist and return what the caller gets."""
