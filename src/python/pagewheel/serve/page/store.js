// What this browser keeps: conversations, settings and the theme. The API key lives as long as the tab.
const CONVERSATIONS = "pagewheel.conversations";
const SETTINGS = "pagewheel.settings";
const KEY = "pagewheel.key";

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

const saved = read(CONVERSATIONS, null);
export const state = {
  conversations: Array.isArray(saved?.list) ? saved.list.filter(isConversation) : [],
  open: saved?.open ?? null, // id of a conversation
  settings: { system: "", sampling: {}, model: "", theme: "", ...read(SETTINGS, {}) },
};

function isConversation(one) {
  return (
    typeof one?.id === "string" && typeof one.title === "string" && Array.isArray(one.messages) &&
    one.messages.every(isMessage)
  );
}

function isMessage(one) {
  const files = one?.attachments ?? [];
  return (
    ["user", "assistant"].includes(one?.role) && typeof one.content === "string" &&
    ["reasoning", "note"].every((name) => ["string", "undefined"].includes(typeof one[name])) &&
    Array.isArray(files) && files.every((each) => typeof each?.name === "string" && typeof each.text === "string")
  );
}

/// Whether it is kept. Where the browser's storage is full, what is new stays in this tab alone.
function keep(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function saveConversations() {
  state.isFull = !keep(CONVERSATIONS, { list: state.conversations, open: state.open });
}

/// Whether they are kept.
export const saveSettings = () => keep(SETTINGS, state.settings);

let key = readKey();

function readKey() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export const apiKey = () => key;

/// Without storage it lasts until the page is loaded again.
export function setApiKey(given) {
  key = given;
  try {
    sessionStorage.setItem(KEY, given);
  } catch {
    // the storage is full, or forbidden
  }
}

export function newConversation() {
  const conversation = { id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), title: "New conversation", messages: [] };
  state.conversations.unshift(conversation);
  state.open = conversation.id;
  return conversation;
}

export function openConversation() {
  return state.conversations.find((one) => one.id === state.open) ?? state.conversations[0] ?? newConversation();
}

export function removeConversation(id) {
  state.conversations = state.conversations.filter((one) => one.id !== id);
  state.open = openConversation().id;
}

export const exported = () => JSON.stringify({ pagewheel: 1, conversations: state.conversations }, null, 1);

/// Adds them; throws where the text is not what exported() gives.
export function importText(text) {
  const list = JSON.parse(text)?.conversations;
  if (!Array.isArray(list) || !list.every(isConversation)) throw new Error("no exported conversations");
  const known = new Set(state.conversations.map((one) => one.id));
  state.conversations.push(...list.filter((one) => !known.has(one.id)));
}
