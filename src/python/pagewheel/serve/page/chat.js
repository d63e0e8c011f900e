// One conversation: its messages, what is being generated, editing.
import { ServerError, streamChat } from "./api.js";
import { byId, copyText, make } from "./dom.js";
import { render, splitReasoning } from "./markdown.js";
import { openConversation, saveConversations, state } from "./store.js";

const DRAW_EVERY = 60; // milliseconds between two drawings of a message that grows
let running = null; // the AbortController of the answer being made
let attachments = []; // {name, text} of the message being written
let changed = () => {}; // the list of conversations is to be drawn again

export function setUpChat(whenChanged) {
  changed = whenChanged;
  const input = byId("input");
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    sendInput();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      sendInput();
    }
  });
  input.addEventListener("input", fitInput);
  byId("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => event.key === "Escape" && stop());
  byId("attach").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", attachFiles);
}

export const stop = () => running?.abort();

export function showConversation() {
  const { messages } = openConversation();
  const log = byId("messages");
  log.replaceChildren(...messages.map((message, index) => messageElement(message, index)));
  if (!messages.length) log.append(make("p", { className: "empty", textContent: "Ask something. The conversation stays in this browser." }));
  log.scrollTop = log.scrollHeight;
  showError("");
}

function messageElement(message, index) {
  const article = make("article", { className: message.role });
  article.setAttribute("aria-label", message.role === "user" ? "You" : "The model");
  const body = make("div", { className: "body" });
  fillBody(body, message);
  article.append(body, tools(message, index));
  return article;
}

function fillBody(body, message) {
  if (message.role === "user") {
    const files = (message.attachments ?? []).map((one) => make("span", { className: "file", textContent: `📄 ${one.name}` }));
    body.replaceChildren(...files, make("pre", { className: "plain", textContent: message.content }));
    return;
  }
  const [inline, text] = splitReasoning(message.content);
  const reasoning = (message.reasoning ?? "") + inline;
  const wasOpen = body.querySelector("details.reasoning")?.open ?? false;
  body.replaceChildren();
  if (reasoning) {
    const summary = make("summary", { textContent: "Reasoning" });
    const folded = make("details", { className: "reasoning", open: wasOpen }, summary, make("pre", { className: "plain", textContent: reasoning }));
    body.append(folded);
  }
  body.append(render(text));
}

function tools(message, index) {
  const row = make("div", { className: "tools" });
  const add = (label, action) => {
    const button = make("button", { type: "button", textContent: label });
    button.addEventListener("click", () => action(button));
    row.append(button);
  };
  add("Copy", (button) => copyText(message.content, button));
  if (message.role === "user") add("Edit", () => edit(index));
  else add("Regenerate", () => regenerate(index));
  if (message.forgets) row.append(make("span", { className: "note", textContent: "From here on the model forgets older parts of this conversation." }));
  if (message.note) row.append(make("span", { className: "note", textContent: message.note }));
  return row;
}

function edit(index) {
  if (running) return;
  const message = openConversation().messages[index];
  const article = byId("messages").children[index];
  const field = make("textarea", { value: message.content, rows: 3 });
  field.setAttribute("aria-label", "Edit the message");
  const save = make("button", { type: "button", className: "primary", textContent: "Send again" });
  const cancel = make("button", { type: "button", textContent: "Cancel" });
  save.addEventListener("click", () => {
    const conversation = openConversation();
    conversation.messages.splice(index, Infinity, { ...message, content: field.value });
    answer(conversation);
  });
  cancel.addEventListener("click", showConversation);
  article.replaceChildren(field, make("div", { className: "row" }, save, cancel));
  field.focus();
}

function regenerate(index) {
  if (running) return;
  const conversation = openConversation();
  conversation.messages.splice(index);
  answer(conversation);
}

function sendInput() {
  const input = byId("input");
  if (running || (!input.value.trim() && !attachments.length)) return;
  const conversation = openConversation();
  if (!conversation.messages.length) conversation.title = (input.value.trim() || attachments[0].name).slice(0, 60);
  conversation.messages.push({ role: "user", content: input.value, attachments });
  input.value = "";
  attachments = [];
  showAttachments();
  fitInput();
  answer(conversation);
}

function requestOf(conversation) {
  const messages = conversation.messages.map(({ role, content, attachments: files = [] }) => {
    if (role === "assistant") return { role, content: splitReasoning(content)[1] };
    const texts = files.map((one) => `File ${one.name}:\n\`\`\`\n${one.text}\n\`\`\`\n\n`);
    return { role, content: texts.join("") + content };
  });
  const { system, sampling, model } = state.settings;
  if (system.trim()) messages.unshift({ role: "system", content: system });
  return { model, messages, ...sampling, context_overflow: "evict" };
}

/// Generates the next message. It goes on in its conversation when another one is opened.
async function answer(conversation) {
  const body = requestOf(conversation);
  const message = { role: "assistant", content: "", reasoning: "" };
  conversation.messages.push(message);
  showConversation();
  changed();
  setBusy(new AbortController());
  const began = performance.now();
  let failure = "";
  try {
    await receive(conversation, message, body, began);
  } catch (error) {
    if (error.name === "AbortError") message.note = "stopped";
    else failure = explain(error);
  }
  setBusy(null);
  if (failure && !message.content && !message.reasoning) conversation.messages.pop();
  saveConversations();
  if (openConversation() === conversation) showConversation();
  showError(failure || (state.isFull ? "This browser's storage is full: delete or export conversations. New ones last as long as this tab." : ""));
  byId("status").textContent = failure ? "" : `The answer is complete. ${message.content.slice(0, 2000)}`;
}

async function receive(conversation, message, body, began) {
  let drawn = 0;
  const started = (headers) => {
    if (!headers.has("x-context-overflow") || conversation.forgets) return;
    conversation.forgets = true;
    message.forgets = true;
  };
  for await (const event of streamChat(body, running.signal, started)) {
    const choice = event.choices?.[0];
    message.content += choice?.delta?.content ?? "";
    message.reasoning += choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? "";
    if (choice?.finish_reason === "length") message.cut = true;
    if (event.usage) {
      const count = event.usage.completion_tokens;
      const rate = (1000 * count) / (performance.now() - began);
      message.note = `${count} tokens, ${rate.toFixed(1)} tokens/s${message.cut ? ", cut off at its limit" : ""}`;
    }
    if (performance.now() - drawn > DRAW_EVERY) {
      drawGrowing(conversation, message);
      drawn = performance.now();
    }
  }
}

function drawGrowing(conversation, message) {
  if (openConversation() !== conversation) return;
  const log = byId("messages");
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  const article = log.lastElementChild;
  article.classList.add("busy");
  fillBody(article.firstElementChild, message);
  if (follows) log.scrollTop = log.scrollHeight;
}

function explain(error) {
  if (!(error instanceof ServerError)) return "The server cannot be reached. Is it still running?";
  if (error.status === 401) return "The server wants an API key: enter it in the settings.";
  return error.message;
}

export function showError(text) {
  byId("error").textContent = text;
  byId("error").hidden = !text;
}

function setBusy(controller) {
  running = controller;
  byId("send").hidden = Boolean(controller);
  byId("stop").hidden = !controller;
  if (controller) byId("status").textContent = "The model is answering.";
}

async function attachFiles() {
  for (const file of byId("files").files) {
    const text = await file.text();
    if (text.includes("\0") || text.includes("\uFFFD")) showError(`${file.name} is not a text in UTF-8.`);
    else attachments.push({ name: file.name, text });
  }
  byId("files").value = "";
  showAttachments();
}

function showAttachments() {
  const items = attachments.map((one) => {
    const remove = make("button", { type: "button", textContent: "×" });
    remove.setAttribute("aria-label", `Remove ${one.name}`);
    remove.addEventListener("click", () => {
      attachments = attachments.filter((each) => each !== one);
      showAttachments();
    });
    return make("li", {}, one.name, remove);
  });
  byId("attachments").replaceChildren(...items);
}

function fitInput() {
  const input = byId("input");
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, 220)}px`;
}
