// Keep the focus: when what has it goes away, it moves to what came in its place, a neighbour, or what is around that.
const FOCUSABLE = 'button, a[href], input, select, textarea, summary, [tabindex]:not([tabindex="-1"])';

let last = null; // what has, or had, the focus

export function keepFocus(page) {
  page.addEventListener("focusin", ({ target }) => (last = target));
  page.addEventListener("focusout", ({ target }) => queueMicrotask(() => {
    if (target === last && target.isConnected && isLost()) last = null; // the user has left it
  }));
  // A button that cannot be used now keeps the focus, which `disabled` would take from it.
  page.addEventListener("click", refuse, true);
  new MutationObserver(move).observe(page, { childList: true, subtree: true });
}

function refuse(event) {
  if (!event.target.closest('[aria-disabled="true"]')) return;
  event.preventDefault();
  event.stopPropagation();
}

const isLost = () => [document.body, null].includes(document.activeElement);
const element = (node) => (node instanceof Text ? node.nextElementSibling : node);

function move(records) {
  if (last === null || last.isConnected || !isLost()) return;
  const places = [];
  let removed = last;
  for (const { target, removedNodes, nextSibling, previousSibling } of records) {
    if (![...removedNodes].some((node) => node.contains(removed))) continue;
    const added = records.filter((record) => record.target === target).flatMap((record) => [...record.addedNodes]);
    places.push(...[...added, element(nextSibling)].map((place) => first(place)), first(element(previousSibling), -1));
    removed = target;
  }
  for (let around = removed; around?.isConnected; around = around.parentElement) places.push(first(around));
  const next = places.find(Boolean) ?? document.getElementById("content");
  if (next?.id === "content") next.tabIndex = -1;
  next?.focus();
}

// What may have the focus in a place: like what had it, if there is such a thing; `at` is 0 for the first and -1 for the last.
// In another view it is the view as a whole, whose parts are still to come.
function first(place, at = 0) {
  if (!(place instanceof Element) || !place.isConnected) return undefined;
  if (place.id === "content" && !place.contains(last)) return place;
  const all = [place, ...place.querySelectorAll("*")].filter((part) => part.matches(FOCUSABLE) && part.checkVisibility());
  const alike = all.filter((part) => part.tagName === last.tagName);
  return (alike.length ? alike : all).at(at);
}
