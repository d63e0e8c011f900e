"""What MkDocs cannot do by itself: pages from outside docs/, and links that lead there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import cpp_headers  # beside this file, whose folder MkDocs puts on the path
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# Pages of the site that stand in the repository's root, where GitHub looks for them.
ROOT_PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_CPP_FOLDER = "api/cpp"
_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the headers' pages into the navigation, at the entry that is named for them."""
    pages = [f"{_CPP_FOLDER}/{header.stem}.md" for header in cpp_headers.public_headers()]
    for section in config.nav or []:
        for entries in section.values():
            if isinstance(entries, list):
                for entry in entries:
                    if isinstance(entry, dict) and entry.get("C++") == []:
                        entry["C++"] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for header in cpp_headers.public_headers():
        uri = f"{_CPP_FOLDER}/{header.stem}.md"
        files.append(File.generated(config, uri, content=cpp_headers.page(header)))
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Leads links from where the file stands in the repository to where it stands on the site."""
    place = posixpath.dirname(page.file.src_uri)
    source = "" if page.file.src_uri in ROOT_PAGES else posixpath.join("docs", place)

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(source, link["path"]))
        uri = _site_uri(target)
        if uri is not None:
            path = posixpath.relpath(uri, place or ".")
        elif config.repo_url:
            path = f"{config.repo_url.rstrip('/')}/blob/main/{target}"
        else:  # a file of the repository, whose address is not known
            return f"{link['text']}"
        return f"{link['mark']}[{link['text']}]({path}{link['anchor'] or ''})"

    return _LINK.sub(rewritten, markdown)


def _site_uri(target: str) -> str | None:
    """Where a file of the repository stands on the site, if it does."""
    if target in ROOT_PAGES:
        return target
    if target == "README.md":
        return "index.md"
    return target.removeprefix("docs/") if target.startswith("docs/") else None
