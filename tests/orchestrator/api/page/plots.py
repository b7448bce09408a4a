"""Look at the pictures of series that uPlot has drawn: which colours their pixels have, and where their cursor is."""

from dataclasses import dataclass

from playwright.sync_api import Locator

# The columns of the canvas, in parts of its width, of the first and the last pixel that has the colour of a property.
_COLUMNS = """(plot, name) => {
  const canvas = plot.querySelector("canvas");
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement("canvas"), { width, height });
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
  context.fillRect(0, 0, 1, 1);
  const color = context.getImageData(0, 0, 1, 1).data;
  context.clearRect(0, 0, 1, 1);
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const columns = [];
  for (let at = 0; at < data.length; at += 4) {
    if (color.every((part, channel) => data[at + channel] === part)) columns.push((at / 4) % width);
  }
  return columns.length ? [Math.min(...columns) / width, Math.max(...columns) / width] : null;
}"""
# Where the chosen place is, in pixels from the start of the axis, and the length of the axis.
_CURSOR = """(plot) => {
  const line = new DOMMatrix(getComputedStyle(plot.querySelector(".u-cursor-x")).transform);
  return [line.m41, plot.querySelector(".u-over").clientWidth];
}"""


@dataclass(frozen=True, slots=True)
class Columns:
    """From where to where there is a colour, as parts of the width of a picture."""

    first: float
    last: float


def columns(plot: Locator, color: str) -> Columns | None:
    """Return where a picture has the colour of a CSS property, or None if it does not have it."""
    ends = plot.evaluate(_COLUMNS, color)
    return None if ends is None else Columns(*ends)


def cursor(plot: Locator) -> tuple[float, float]:
    """Return the place of the cursor and the length of the axis, in pixels."""
    at, length = plot.evaluate(_CURSOR)
    return at, length
