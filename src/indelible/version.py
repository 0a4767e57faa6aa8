"""The version, where everything may import it."""

VERSION = "0.1.0"
