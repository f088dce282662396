"""Sealed trials as a table: every field of a record has its column, and nothing goes in silence."""
