"""What the API reference is made of: prose of comments, members of tables."""

from __future__ import annotations

import sys
from pathlib import Path

from pages import ROOT

sys.path.append(str(ROOT / "scripts/docs"))
import cpp_headers
import prose

TABLE = """// A table.
#ifndef TABLE
#endif
PAGEWHEEL_SECTION("Lengths (\\"sizes\\")")
PAGEWHEEL_PARAMETER(size_t, length, 7, value > 0 && f(value, 1), "1 or more",
                    "How long, "
                    "in tokens.")
PAGEWHEEL_FILTER(std::set<int>, ids, {}, true, "", "Any.")
#undef TABLE
"""
HEADER = """// One thing.
#pragma once

namespace pagewheel {

class Other;

/// First line
/// second line:
///
///   a  indented
///
/// Last.
struct PAGEWHEEL_API Thing {
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) type name = initial;
#include "pagewheel/table.def"

    int f() const {
        return 1;
    }

private:
    int hidden;
};

/// Makes one.
PAGEWHEEL_API Thing make(int a,
                         int b);

}  // namespace pagewheel
"""
PAGE = """# thing.hpp

One thing.

```cpp
#include <pagewheel/thing.hpp>
```

## Thing

First line
second line:

```text
  a  indented
```

Last.

```cpp
struct Thing {

    // Lengths ("sizes")
    /// How long, in tokens. Allowed: 1 or more.
    size_t length = 7;
    /// Any.
    std::set<int> ids = {};

    int f() const {
        return 1;
    }
};
```

## make

Makes one.

```cpp
Thing make(int a,
                         int b);
```
"""


def test_a_header_becomes_a_page(tmp_path: Path) -> None:
    (tmp_path / "table.def").write_text(TABLE)
    header = tmp_path / "thing.hpp"
    header.write_text(HEADER)
    assert cpp_headers.page(header) == PAGE


def test_lists_and_code_are_left_as_they_are() -> None:
    text = "- one\n  goes on\n- two\n\n```sh\n  code\n```\nend"
    assert prose.to_markdown(text.splitlines()) == text


def test_lines_that_are_items_become_a_list() -> None:
    text = prose.to_markdown(["Values:", "  a: one", "  b (int, 2): two: or three", "End."])
    assert text == "Values:\n\n- `a`: one\n- `b` (int, 2): two: or three\n\nEnd."


def test_text_that_was_changed_once_is_not_changed_again() -> None:
    for lines in (["Values:", "  a: one", "  b: two"], ["Values:", "  a  one", "  b  two"]):
        once = prose.to_markdown(lines)
        assert prose.to_markdown(once.splitlines()) == once
