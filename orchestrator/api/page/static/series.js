// Series over x, drawn by uPlot. The pointer and the arrow keys choose a place, whose values are in the legend; at first the latest.
/* global uPlot */
import { signal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { markOf, number } from "./format.js";
import { html } from "./parts.js";

const FONT = "11px system-ui, sans-serif";
const POINT = 5; // pixels
const AWAY = { left: -10, top: -10 }; // no place is chosen
const WHOLE = [1, 2, 5].flatMap((digit) => Array.from({ length: 9 }, (_, power) => digit * 10 ** power)).sort((one, other) => one - other);

// A colour is the name of a property in style.css, which has one for each scheme.
export function Key({ color }) {
  return html`<i class="key" style=${{ background: `var(${color})` }}></i>`;
}

// `lines` have a `color`, places `x` in ascending order, and as many `values`, null for a gap. `name` puts a line into the
// legend, with `text(value)`. `area` fills it down to 0, `dash` breaks it, `radii` (pixels) makes it circles; `drawn` are values to
// draw instead. `x` is { name, isTime, isWhole, range, text(value) }, and the range of values includes `reach`.
export function Series({ label, lines, x, reach, square = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const latest = useRef(null);
  const place = useMemo(() => signal(null), []);
  latest.current = { lines, x, reach };
  const shape = JSON.stringify(lines.map(({ color, area, radii }) => [color, area, Boolean(radii)]));

  useLayoutEffect(() => {
    const { clientWidth: width, clientHeight: height } = box.current;
    const drawing = new uPlot({ ...optionsOf(latest, place), width, height }, tableOf(lines, true), box.current);
    plot.current = drawing;
    const observer = new ResizeObserver(([{ contentRect }]) => drawing.setSize({ width: contentRect.width, height: contentRect.height }));
    observer.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => drawing.redraw(false);
    scheme.addEventListener("change", redraw);
    return () => {
      scheme.removeEventListener("change", redraw);
      observer.disconnect();
      drawing.destroy();
    };
  }, [shape]);
  useLayoutEffect(() => {
    plot.current.setData(tableOf(lines, true));
    plot.current.redraw(false, true); // the language of the marks may have changed, too
  });

  const choose = (event) => {
    const [places, ...rows] = plot.current.data;
    const stops = [...places.keys()].filter((at) => lines.some(({ name }, row) => name && rows[row][at] !== undefined));
    const at = stops.indexOf(place.value?.at ?? stops.at(-1));
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: stops.length - 1 }[event.key];
    if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const stop = stops[Math.max(0, Math.min(stops.length - 1, next))];
    plot.current.setCursor(stop === undefined ? AWAY : { left: plot.current.valToPos(places[stop], "x"), top: 0 });
  };
  return html`<figure class="plot">
    <div class=${square ? "series square" : "series"} ref=${box} role="img" tabindex="0" aria-label=${label} onKeyDown=${choose}
      onBlur=${() => plot.current.setCursor(AWAY)}></div>
    <${Legend} lines=${lines} x=${x} place=${place} />
  </figure>`;
}

// The values at the chosen place, or the last ones.
function Legend({ lines, x, place }) {
  const [places, ...rows] = useMemo(() => tableOf(lines, false), [lines]);
  const last = (row) => row.findLastIndex((value) => value !== undefined);
  const named = lines.map((line, row) => ({ ...line, row: rows[row], at: place.value?.rows[row] ?? last(rows[row]) })).filter(({ name }) => name);
  const end = Math.max(...named.map(({ at }) => at));
  return html`<ul class="legend">
    <li>${x.name} <span class=${x.isTime ? "value moment" : "value"}>${end in places ? x.text(places[end]) : "–"}</span></li>
    ${named.map(({ name, color, text, row, at }) => html`<li key=${name}><${Key} color=${color} /> <bdi>${name}</bdi> <span class="value">${
      row[at] === null || row[at] === undefined ? "–" : text(row[at])}</span></li>`)}
  </ul>`;
}

const decimals = (step) => String(step).split(".")[1]?.length ?? 0;

// All lines at all places, as uPlot has them: undefined where only another line has a value.
function tableOf(lines, isDrawn) {
  return uPlot.join(lines.map(({ x, values, drawn }) => [x, (isDrawn && drawn) || values]));
}

function optionsOf(latest, place) {
  const color = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
  const axis = (side) => ({
    font: FONT,
    stroke: color("--dim"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
    values: (_, marks, __, ___, step) => marks.map((value) => (side === "x" && x.isTime ? markOf(value, step) : number(value, decimals(step)))),
  });
  const { lines, x } = latest.current;
  return {
    legend: { show: false, live: true },
    cursor: { y: false, drag: { x: false, y: false } },
    padding: [8, 12, 0, 0],
    scales: {
      x: { time: x.isTime ?? false, range: (_, low, high) => latest.current.x.range ?? [low, high] },
      y: { range: (_, low, high) => [Math.min(0, low), Math.max(latest.current.reach, high)] },
    },
    axes: [{ ...axis("x"), size: 24, space: 76, ...(x.isWhole ? { incrs: WHOLE } : {}) }, { ...axis("y"), size: 44 }],
    series: [{}, ...lines.map((line, row) => ({
      ...(line.area ? { fill: color(line.color), width: 0 } : { stroke: color(line.color), width: 2, dash: line.dash }),
      ...(line.radii ? { paths: () => null } : {}),
      points: {
        ...(line.radii ? { show: circles(latest, row) } : line.area || line.dash ? { show: false } : { size: POINT }),
        fill: color(line.color),
      },
    }))],
    hooks: {
      setLegend: [({ cursor: { idx, idxs } }) => (place.value = idx === null || idx === undefined ? null : { at: idx, rows: idxs.slice(1) })],
    },
  };
}

// Draw the circles of a line. Returns false, so that uPlot draws no points of its own.
function circles(latest, row) {
  return (drawing) => {
    const { x, values, radii } = latest.current.lines[row];
    const { ctx } = drawing;
    ctx.save();
    ctx.fillStyle = drawing.series[row + 1].points.fill();
    for (const [at, radius] of radii.entries()) {
      ctx.beginPath();
      ctx.arc(drawing.valToPos(x[at], "x", true), drawing.valToPos(values[at], "y", true), radius * uPlot.pxRatio, 0, 2 * Math.PI);
      ctx.fill();
    }
    ctx.restore();
    return false;
  };
}
