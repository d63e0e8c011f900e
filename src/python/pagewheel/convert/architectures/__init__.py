"""The architectures that are read: a file each, and `registry`, the table of all.

To add one, write a file like `granite.py` and add its name to `registry`.
"""
