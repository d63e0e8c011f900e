"""What a command needs beyond pagewheel's own dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


def check_installed(what: str, extra: str, packages: Iterable[str]) -> None:
    """Raises RuntimeError, with what is missing and how to install it."""
    missing = [name for name in packages if not _is_there(name)]
    if missing:
        raise RuntimeError(
            f"{what} needs packages that are not installed: {', '.join(missing)}. "
            f"Run: pip install 'pagewheel[{extra}]'"
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a package that it is in
        return False
