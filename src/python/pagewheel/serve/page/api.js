// Requests to the server that this page came from.
import { apiKey } from "./store.js";

export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers() {
  const key = apiKey();
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ServerError(response.status, body?.error?.message ?? `The server answered ${response.status}.`);
}

export async function getJson(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  return (await checked(response)).json();
}

/// The events' JSON, as they come. `started` is called with the answer's headers.
export async function* streamChat(body, signal, started) {
  const request = { method: "POST", headers: headers(), body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }), signal };
  const response = await checked(await fetch("/v1/chat/completions", request));
  started(response.headers);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
      if (!data || data === "[DONE]") continue;
      const json = JSON.parse(data);
      if (json.error) throw new ServerError(500, json.error.message);
      yield json;
    }
  }
}
