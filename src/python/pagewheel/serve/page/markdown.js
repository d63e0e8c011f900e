// A model's text to elements. What it says is not trusted: no scripts, no images, no forms.
import { copyText, make } from "./dom.js";
import { marked } from "./vendor/marked.js";
import purify from "./vendor/purify.js";

const TAGS = ["p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a",
  "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"];

// Markup of the text's own is shown as it is written.
marked.use({ renderer: { html: ({ text }) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;") } });

export function render(text) {
  const html = marked.parse(text, { gfm: true, breaks: true });
  const body = purify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "start", "align"],
    ALLOWED_URI_REGEXP: /^(https?:|mailto:)/i,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const link of body.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const block of body.querySelectorAll("pre")) {
    const code = block.textContent;
    const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
    button.setAttribute("aria-label", "Copy the code");
    button.addEventListener("click", () => copyText(code, button));
    block.append(button);
  }
  return body;
}

/// Reasoning that a server left in the text, and the answer after it.
export function splitReasoning(text) {
  const match = /^\s*<think>([\s\S]*?)(?:<\/think>\s*|$)/.exec(text);
  return match ? [match[1], text.slice(match[0].length)] : ["", text];
}
