"""Asks a server through LiteLLM and prints JSON: python litellm_client.py URL.

A program of its own: LiteLLM wants another version of OpenAI's client than the tests do.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask another host

import litellm
from asking import CHAT_TOOLS, HELLO, SCHEMA, THOUGHT, saying

litellm.telemetry = False


def arguments(provider: str, url: str, **fields: Any) -> dict[str, Any]:
    base = f"{url}/v1" if provider != "anthropic" else url
    return {
        "model": f"{provider}/tiny",
        "api_base": base,
        "api_key": "none",
        "messages": HELLO,
        "max_tokens": 300,
        **fields,
    }


async def streamed(url: str) -> str:
    stream = await litellm.acompletion(**arguments("openai", url, stream=True, **saying(THOUGHT)))
    return "".join([event.choices[0].delta.content or "" async for event in stream])


def main(url: str) -> None:
    calls = arguments("hosted_vllm", url, tools=CHAT_TOOLS, **saying(THOUGHT))
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    message = litellm.completion(**calls).choices[0].message
    print(
        json.dumps(
            {
                "text": litellm.completion(**arguments("openai", url, **saying(THOUGHT)))
                .choices[0]
                .message.content,
                "streamed": asyncio.run(streamed(url)),
                "call": message.tool_calls[0].function.model_dump(),
                "reasoning": message.reasoning_content,
                "shaped": litellm.completion(**arguments("openai", url, response_format=shape))
                .choices[0]
                .message.content,
                "anthropic": litellm.completion(**arguments("anthropic", url))
                .choices[0]
                .message.content,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
