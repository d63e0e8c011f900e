"""Endpoints: each file translates requests of one kind into generation, and back."""
