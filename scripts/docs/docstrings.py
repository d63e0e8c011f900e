"""What griffe does not make of the stub by itself: overloaded methods, and text as Markdown."""

from __future__ import annotations

from typing import Any

import griffe
from prose import to_markdown  # beside this file; scripts/docs/hooks.py was loaded from there


class Docstrings(griffe.Extension):
    """For mkdocs.yml."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """A stub has overloads without an implementation, which griffe would leave out."""
        for name, overloads in cls.overloads.items():
            if name in cls.members:
                continue
            first = overloads[0]
            method = griffe.Function(name, lineno=first.lineno, endlineno=first.endlineno)
            method.overloads = list(overloads)
            texts = [o.docstring.value for o in overloads if o.docstring is not None]
            if texts:
                distinct = dict.fromkeys(texts)
                method.docstring = griffe.Docstring("\n\n".join(distinct), parent=method)
            cls.set_member(name, method)
            self.on_instance(obj=method)

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        if isinstance(obj, griffe.Object) and obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value.splitlines())
