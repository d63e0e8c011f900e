// Puts the page together: views, conversations, panels.
import { getJson } from "./api.js";
import { showCache } from "./cache_view.js";
import { setUpChat, showConversation, showError, stop } from "./chat.js";
import { byId, download, make } from "./dom.js";
import { applyTheme, setUpSettings, showModels, switchTheme } from "./settings.js";
import { exported, importText, newConversation, openConversation, removeConversation, saveConversations, state } from "./store.js";

function showList() {
  state.open = openConversation().id;
  const items = state.conversations.map((one) => {
    const name = make("button", { type: "button", className: "name", textContent: one.title });
    if (one.id === state.open) name.setAttribute("aria-current", "true");
    name.addEventListener("click", () => open(one.id));
    const remove = make("button", { type: "button", className: "remove", textContent: "×" });
    remove.setAttribute("aria-label", `Delete ${one.title}`);
    remove.addEventListener("click", () => {
      if (one.id === state.open) stop();
      removeConversation(one.id);
      redraw();
    });
    return make("li", { className: one.id === state.open ? "open" : "" }, name, remove);
  });
  byId("conversations").replaceChildren(...items);
  saveConversations();
}

function redraw() {
  showList();
  showConversation();
}

function open(id) {
  state.open = id;
  byId("sidebar").classList.remove("shown");
  select("chat");
  redraw();
}

function select(name) {
  for (const each of ["chat", "cache"]) {
    const tab = byId(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    byId(each).hidden = each !== name;
  }
  showCache(name === "cache");
}

function setUpTabs() {
  for (const name of ["chat", "cache"]) {
    byId(`tab-${name}`).addEventListener("click", () => select(name));
    byId(`tab-${name}`).addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = name === "chat" ? "cache" : "chat";
      select(other);
      byId(`tab-${other}`).focus();
    });
  }
}

function setUpPanels() {
  byId("toggle-settings").addEventListener("click", (event) => {
    const panel = byId("settings");
    panel.hidden = !panel.hidden;
    event.currentTarget.setAttribute("aria-expanded", String(!panel.hidden));
  });
  byId("toggle-list").addEventListener("click", (event) => {
    const isShown = byId("sidebar").classList.toggle("shown");
    event.currentTarget.setAttribute("aria-expanded", String(isShown));
  });
  byId("theme").addEventListener("click", switchTheme);
}

function setUpConversations() {
  byId("new").addEventListener("click", () => {
    open(newConversation().id);
    byId("input").focus();
  });
  byId("export").addEventListener("click", () => download("conversations.json", exported()));
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", async (event) => {
    try {
      importText(await event.target.files[0].text());
      redraw();
    } catch {
      showError("This file has no conversations that were exported here.");
    }
    event.target.value = "";
  });
}

async function loadModels() {
  try {
    showModels((await getJson("/v1/models")).data.map((each) => each.id));
    showError("");
  } catch (error) {
    const wantsKey = error.status === 401;
    if (wantsKey && byId("settings").hidden) byId("toggle-settings").click();
    showError(wantsKey ? "The server wants an API key: enter it in the settings." : error.message);
  }
}

applyTheme();
setUpTabs();
setUpPanels();
setUpConversations();
setUpSettings(loadModels, showError);
setUpChat(showList);
redraw();
loadModels();
