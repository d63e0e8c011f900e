// Model, system prompt, API key and what is asked of the sampler.
import { byId, make } from "./dom.js";
import { apiKey, saveSettings, setApiKey, state } from "./store.js";

const SAMPLING = [
  ["temperature", "Temperature", { min: 0, step: 0.1 }],
  ["top_p", "Top p", { min: 0, max: 1, step: 0.05 }],
  ["top_k", "Top k", { min: 0, step: 1 }],
  ["min_p", "Min p", { min: 0, max: 1, step: 0.01 }],
  ["repetition_penalty", "Repetition penalty", { min: 0, step: 0.05 }],
  ["max_tokens", "Longest answer, tokens", { min: 1, step: 1 }],
  ["seed", "Seed", { min: 0, step: 1 }],
];

let whenNotKept = () => {};

function save() {
  if (!saveSettings()) whenNotKept("This browser's storage is full: delete or export conversations. Settings last as long as this tab.");
}

export function setUpSettings(whenKeyChanged, tell) {
  whenNotKept = tell;
  const { settings } = state;
  byId("system").value = settings.system;
  byId("system").addEventListener("input", (event) => {
    settings.system = event.target.value;
    save();
  });
  byId("key").value = apiKey();
  byId("key").addEventListener("change", (event) => {
    setApiKey(event.target.value.trim());
    whenKeyChanged();
  });
  byId("sampling").append(...SAMPLING.map(samplingField));
  byId("model").addEventListener("change", (event) => {
    settings.model = event.target.value;
    save();
  });
}

function samplingField([name, label, bounds]) {
  const { sampling } = state.settings;
  const field = make("input", { type: "number", id: `sampling-${name}`, value: sampling[name] ?? "", ...bounds });
  field.addEventListener("input", () => {
    if (field.value === "" || !field.validity.valid) delete sampling[name];
    else sampling[name] = Number(field.value);
    save();
  });
  return make("label", {}, label, field);
}

export function showModels(names) {
  const select = byId("model");
  select.replaceChildren(...names.map((name) => make("option", { value: name, textContent: name })));
  if (!names.includes(state.settings.model)) state.settings.model = names[0];
  select.value = state.settings.model;
}

export function applyTheme() {
  const isDark = state.settings.theme ? state.settings.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  return isDark;
}

export function switchTheme() {
  state.settings.theme = applyTheme() ? "light" : "dark";
  save();
  applyTheme();
}
