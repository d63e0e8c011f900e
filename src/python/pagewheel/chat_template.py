"""Chat templates: the Jinja2 dialect of Hugging Face's models, rendered within limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .template_process import PROCESS

# No real conversation takes a hundredth of it.
_MAX_SECONDS = 10.0
_MAX_CHARACTERS = 16 << 20


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    extra_context: Mapping[str, Any] | None = None,
    bos_token: str = "",
    eos_token: str = "",
    max_seconds: float = math.inf,
) -> str:
    """The prompt for a conversation, as transformers' apply_chat_template gives it.

    `extra_context` adds names to the template's context and overrides those above. All of them
    must be values that JSON knows. A process with limits renders, one template at a time.

    Raises ValueError, which begins with "chat template", for a template that does not compile,
    refuses the conversation (with its own message), fails on it, or does not end within ten
    seconds (`max_seconds` where that is less), 512 MB of memory and 16 million characters.
    Raises RuntimeError, which says why, where no such process can be started.
    """
    context: dict[str, Any] = {
        "messages": messages,
        "tools": tools,
        "documents": documents,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos_token,
        "eos_token": eos_token,
        **(extra_context or {}),
    }
    return PROCESS.render(
        template,
        context,
        max_seconds=min(max_seconds, _MAX_SECONDS),
        max_characters=_MAX_CHARACTERS,
    )
