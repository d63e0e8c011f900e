"""Pipelines that serve, what runs in them, and which of them are in memory."""
