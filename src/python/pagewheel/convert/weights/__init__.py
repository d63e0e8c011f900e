"""Weights between a source and a graph: their forms, and compression to fewer bits."""
