"""`pagewheel serve`: models behind OpenAI's HTTP API. docs/serving.md says what it does.

http: connections, bodies, errors and streams. api: one file per endpoint, which translates between
requests and generation. models: pipelines, and which of them are in memory. security, metrics and
logs stand beside them. Needs the extra `pagewheel[serve]`.
"""
