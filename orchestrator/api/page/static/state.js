// What all views share: who is logged in, the address, the language, and whether the daemon answers.
import { effect, signal } from "@preact/signals";

export const session = signal(undefined); // undefined: not known yet; null: nobody is logged in
export const lost = signal(false); // the daemon did not answer the latest request
export const route = signal(parse(location.hash));
export const language = signal(stored("language") ?? (navigator.language.startsWith("de") ? "de" : "en"));

effect(() => {
  document.documentElement.lang = language.value;
});
addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

export function may(permission) {
  return session.value?.permissions.includes(permission) ?? false;
}

export function setLanguage(name) {
  language.value = name;
  try {
    localStorage.setItem("language", name);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

export function address(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

function parse(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return parts; // a malformed address names nothing that exists
  }
}

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}
