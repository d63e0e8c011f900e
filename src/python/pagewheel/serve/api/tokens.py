"""/tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

from pagewheel.serve.api.conversation import read_messages, take_template_kwargs
from pagewheel.serve.api.generating import Conversation, prompt_of, take_prompt_suffix
from pagewheel.serve.api.tools import take_tools
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.http.fields import Fields, shown
from pagewheel.serve.http.request_context import RequestContext


async def tokenize(context: RequestContext) -> None:
    """Of a text, or of a conversation as its template renders it."""
    body = await context.read_body()
    model, prompt, special, conversation = await context.made_of_body(lambda: _read(Fields(body)))

    async def answer() -> None:
        async with context.service.registry.use(model) as engine:
            if conversation is not None:
                tokens = (await prompt_of(context, engine, conversation)).tokens
            else:
                tokens = await engine.with_text(
                    context.api_key_id, len(prompt), lambda: engine.encode(prompt, special)
                )
            answer = {"count": len(tokens), "max_model_len": engine.max_model_len, "tokens": tokens}
            await context.send_made(lambda: answer, len(tokens))

    await context.while_connected(answer())


def _read(fields: Fields) -> tuple[str | None, str, bool, Conversation | None]:
    """The model, and a text with whether special tokens come before it, or a conversation."""
    model = fields.take("model", str)
    prompt = fields.take("prompt", str)
    messages = fields.take("messages", list)
    if (prompt is None) == (messages is None):
        raise ApiError(400, "give prompt or messages, one of them", param="prompt")
    conversation = None
    special = True
    if messages is None:
        special = fields.take("add_special_tokens", bool, True)
    else:
        said = read_messages("messages", messages)
        conversation = Conversation(
            said, take_tools(fields), take_template_kwargs(fields), take_prompt_suffix(fields, said)
        )
    fields.refuse_rest()
    return model, prompt or "", special, conversation


async def detokenize(context: RequestContext) -> None:
    """The text of token ids, special ones too."""
    body = await context.read_body()
    model, tokens = await context.made_of_body(lambda: _read_tokens(Fields(body)))

    async def answer() -> None:
        async with context.service.registry.use(model) as engine:
            text = await engine.with_text(
                context.api_key_id, len(tokens), lambda: engine.decode(tokens)
            )
            await context.send_made(lambda: {"prompt": text}, len(tokens))

    await context.while_connected(answer())


def _read_tokens(fields: Fields) -> tuple[str | None, list[int]]:
    model = fields.take("model", str)
    tokens = fields.need("tokens", list)
    fields.refuse_rest()
    for number, each in enumerate(tokens):
        if type(each) is not int or not 0 <= each < 2**31:
            raise bad_field(f"tokens[{number}]", f"must be a token id, got {shown(each)}")
    return model, tokens
