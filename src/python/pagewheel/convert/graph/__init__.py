"""The ov::Model of a decoder, built from its description and its weights."""
