"""Connections, bodies, errors and streams: what is the same for every endpoint."""
