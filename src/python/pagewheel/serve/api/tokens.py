"""/tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

from pagewheel.serve.api.conversation import read_messages, take_template_context
from pagewheel.serve.api.generating import Conversation, prompt_of, take_ending
from pagewheel.serve.api.tools import take_tools
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.http.exchange import Exchange
from pagewheel.serve.http.fields import Fields, shown


async def tokenize(exchange: Exchange) -> None:
    """Of a text, or of a conversation as its template renders it."""
    fields = Fields(await exchange.read_body())
    model = fields.take("model", str)
    prompt = fields.take("prompt", str)
    messages = fields.take("messages", list)
    if (prompt is None) == (messages is None):
        raise ApiError(400, "give prompt or messages, one of them", param="prompt")
    if messages is None:
        special = fields.take("add_special_tokens", bool, True)
    else:
        said = read_messages("messages", messages)
        conversation = Conversation(
            said, take_tools(fields), take_template_context(fields), take_ending(fields, said)
        )
    fields.refuse_rest()

    async def answer() -> None:
        async with exchange.service.registry.use(model) as engine:
            if prompt is not None:
                tokens = await engine.with_text(
                    exchange.owner, len(prompt), lambda: engine.encode(prompt, special)
                )
            else:
                tokens = (await prompt_of(exchange, engine, conversation)).tokens
            answer = {"count": len(tokens), "max_model_len": engine.context, "tokens": tokens}
            await exchange.send_made(lambda: answer, len(tokens))

    await exchange.while_connected(answer())


async def detokenize(exchange: Exchange) -> None:
    """The text of token ids, special ones too."""
    fields = Fields(await exchange.read_body())
    model = fields.take("model", str)
    tokens = fields.need("tokens", list)
    fields.refuse_rest()
    for number, each in enumerate(tokens):
        if type(each) is not int or not 0 <= each < 2**31:
            raise bad_field(f"tokens[{number}]", f"must be a token id, got {shown(each)}")

    async def answer() -> None:
        async with exchange.service.registry.use(model) as engine:
            try:
                text = await engine.with_text(
                    exchange.owner, len(tokens), lambda: engine.decode(tokens)
                )
            except IndexError as error:
                raise bad_field("tokens", str(error)) from None
            await exchange.send_json({"prompt": text})

    await exchange.while_connected(answer())
