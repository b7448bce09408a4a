// The picture of a run: the graph at the left, times at the right, in the same rows. The daemon has laid it out.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { duration, line, number } from "./format.js";
import { Details, Empty, Head, html, Problem, stateClass, useAnswer, useSome } from "./parts.js";
import { stateName, t, word } from "./texts.js";

const ROW = 26; // pixels
const BLOCK = 8; // rows by which what is drawn moves on, and as many are drawn above and below the visible ones
const WIDE = 1000; // units of the time axis, which is stretched to the width that there is
const LEAST = 3; // units of the shortest bar
const TICK = 250; // milliseconds between two moments that are drawn of a run that has not ended
const THIN = ["dependencies", "onpath", "broken"]; // lines, not bars
const TICK_WIDTH = 90; // pixels of the axis between two of its times, at least
const ROOM = 120; // pixels of a graph that may grow
const ROUND = 5; // pixels of the corners of lines
const FIGURES = Object.fromEntries(["attempt_number", "start_at", "duration", "predicted", "expected_range", "slack"].map((key) => [key, "figure"]));
const PARTS = ["dependencies", "queued", "paused", "read", "write", "tools", "core", "gates", "other"];

// A picture of many steps has some of their rows. `onLook(first, last)` asks for others, and a later picture has them.
export function Chart({ picture, receivedAt, live, selected, onSelect, onOpen, onLook }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 400, width: 800 });
  const now = useNow(live, picture.seconds, receivedAt);
  const { rows, first: start, count } = picture;
  const isFollowed = useRef(live); // then the graph has room to grow
  const place = useRef(-1); // the number of the row that was selected last
  const shownAt = rows.findIndex((row) => row.id === selected);
  if (shownAt >= 0) place.current = start + shownAt;
  const at = selected === null ? -1 : place.current;

  useLayoutEffect(() => {
    const measure = () => {
      const { scrollTop, clientHeight: height, clientWidth: width } = box.current;
      const top = BLOCK * ROW * Math.floor(scrollTop / (BLOCK * ROW));
      setView((old) => (old.top === top && old.height === height && old.width === width ? old : { top, height, width }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    box.current.addEventListener("scroll", measure, { passive: true });
    return () => observer.disconnect();
  }, []);

  const wanted = {
    first: Math.max(0, Math.floor(view.top / ROW) - BLOCK),
    last: Math.min(count, Math.ceil((view.top + view.height) / ROW) + 2 * BLOCK),
  };
  const first = Math.max(wanted.first, start);
  const last = Math.max(first, Math.min(wanted.last, start + rows.length));
  const lacks = wanted.first < start || wanted.last > start + rows.length;
  const stage = useStages(2);
  const pending = useRef(null); // the number of a row to select when it is there
  useEffect(() => {
    if (lacks) onLook?.(wanted.first, wanted.last);
  }, [lacks, wanted.first, wanted.last]);
  useEffect(() => {
    const row = rows[pending.current - start];
    if (pending.current === null || !row) return;
    pending.current = null;
    onSelect(row.id);
  }, [picture]);
  if (!count && !picture.planning.length) {
    return html`<div class="chart" ref=${box}><${Empty} text=${t("steps_none")} /></div>`;
  }
  const slice = { first, last, visible: rows.slice(first - start, last - start) };
  const ticks = Math.max(2, Math.min(6, Math.floor((0.5 * view.width) / TICK_WIDTH)));
  const end = axisEnd(Math.max(now, picture.expected_end ?? 0), ticks);
  const widest = Math.max(60, Math.min(320, 0.3 * view.width));
  const scale = Math.min(1, widest / picture.width);
  const graph = Math.ceil(Math.max(picture.width * scale, isFollowed.current ? Math.min(ROOM, widest) : 0)) + 10;

  const pick = (index) => {
    if (index < 0 || index >= count) return;
    const row = rows[index - start];
    pending.current = row ? null : index;
    place.current = index;
    if (row) onSelect(row.id);
    const top = index * ROW;
    const head = box.current.querySelector(".axis").offsetHeight;
    if (top < box.current.scrollTop) box.current.scrollTop = top;
    const bottom = top + ROW + head;
    if (bottom > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = bottom - box.current.clientHeight;
  };
  const keys = {
    ArrowDown: () => pick(Math.min(at + 1, count - 1)),
    ArrowUp: () => pick(Math.max(at - 1, 0)),
    Home: () => pick(0),
    End: () => pick(count - 1),
    PageDown: () => pick(Math.min(at + 10, count - 1)),
    PageUp: () => pick(Math.max(at - 10, 0)),
    Enter: () => selected !== null && onOpen(selected),
  };
  const onKey = (event) => {
    const act = keys[event.key];
    if (!act || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  };
  const onClick = (event) => {
    const index = Math.floor((event.clientY - event.currentTarget.getBoundingClientRect().top) / ROW);
    pick(index);
  };

  return html`<div class="chart" ref=${box}>
    <div class="axis" style=${{ "--graph": `${graph}px` }}>
      <${Axis} end=${end} count=${ticks} />
      ${picture.planning.length ? html`<${Planning} bars=${picture.planning} end=${end} now=${now} />` : null}
    </div>
    <div class="rows" style=${{ "--graph": `${graph}px`, height: `${count * ROW}px` }} onClick=${onClick}>
      ${at >= 0 ? html`<div class="band" style=${{ top: `${at * ROW}px` }}></div>` : null}
      ${stage < 1 ? null : html`<${Graph} picture=${picture} slice=${slice} scale=${scale} width=${graph} selected=${at} />`}
      <div class="labels" role="listbox" tabindex="0" aria-label=${t("steps")} onKeyDown=${onKey}
        aria-activedescendant=${at >= first && at < last ? `row-${at}` : null}>
        ${slice.visible.map((row, offset) => html`<${Label} key=${row.id} row=${row} index=${first + offset}
          count=${count} selected=${first + offset === at} now=${now} />`)}
      </div>
      ${stage < 2 ? null : html`<${Times} slice=${slice} end=${end} now=${now} live=${live} />`}
    </div>
  </div>`;
}

// How many frames ago something was first drawn, up to a number: what is large is drawn in parts, a frame for each.
function useStages(last) {
  const [stage, setStage] = useState(0);
  useEffect(() => {
    if (stage === last) return undefined;
    const frame = requestAnimationFrame(() => setStage(stage + 1));
    return () => cancelAnimationFrame(frame);
  }, [stage]);
  return stage;
}

function useNow(live, base, receivedAt) {
  const [, turn] = useState(0);
  useEffect(() => {
    if (!live) return undefined;
    const timer = setInterval(() => turn((count) => count + 1), TICK);
    return () => clearInterval(timer);
  }, [live]);
  return live ? base + (performance.now() - receivedAt) / 1000 : base;
}

function Axis({ end, count }) {
  const step = nice(end / count);
  const ticks = Array.from({ length: Math.round(end / step) + 1 }, (_, index) => index * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return html`<div class="ticks" aria-hidden="true">
    ${ticks.map((at, index) => html`<span key=${index} class=${index === ticks.length - 1 ? "tick last" : "tick"}
      style=${{ transform: `translateX(${(100 * at) / end}%)` }}><span>${number(at, digits)}${index === ticks.length - 1 ? " s" : ""}</span></span>`)}
  </div>`;
}

function Planning({ bars, end, now }) {
  return html`<div class="planning">
    <span class="label">${t("plan_row")}</span>
    <svg viewBox="0 0 ${WIDE} ${ROW}" preserveAspectRatio="none" aria-hidden="true">
      ${bars.map((bar) => html`<${Rect} kind="plan" start=${bar.start} stop=${bar.end ?? now} end=${end} y=${9} height=${8} />`)}
    </svg>
  </div>`;
}

function Label({ row, index, count, selected, now }) {
  const took = row.started === null ? null : (row.finished ?? now) - row.started;
  const name = [
    row.id,
    stateName(row.state),
    took === null ? "" : duration(took),
    row.critical ? t("critical_yes") : `${t("slack")} ${duration(row.slack)}`,
    line(row.action),
  ];
  const kind = `row ${stateClass(row.state)}${row.critical ? " critical" : ""}${row.parent ? " child" : ""}`;
  return html`<div role="option" id=${`row-${index}`} class=${kind} style=${{ top: `${index * ROW}px` }}
    aria-selected=${selected} aria-posinset=${index + 1} aria-setsize=${count} aria-label=${name.filter(Boolean).join(", ")}>
    <span class="id"><bdi>${line(row.id)}</bdi></span>
    <span class="action"><bdi>${row.state === "failed" || row.state === "cancelled" ? line(row.cause ?? row.action) : line(row.action)}</bdi></span>
    <span class="took">${took === null ? "" : duration(took)}</span>
  </div>`;
}

function Graph({ picture, slice, scale, width, selected }) {
  const { first, last, visible } = slice;
  const x = (at) => 4 + at * scale;
  const y = (index) => (index - first) * ROW + ROW / 2;
  const drawn = picture.lines.filter((edge) => edge.before < last && edge.after >= first);
  const kind = (edge) =>
    `line${edge.critical ? " critical" : ""}${edge.before === selected || edge.after === selected ? " near" : ""}`;
  const weight = (edge) => (edge.before === selected || edge.after === selected ? 2 : edge.critical ? 1 : 0);
  drawn.sort((one, other) => weight(one) - weight(other));
  return html`<svg class="graph" role="img" aria-label=${t("picture")} width=${width} height=${(last - first) * ROW}
    style=${{ top: `${first * ROW}px` }}>
    ${drawn.map((edge) => html`<path key=${`${edge.before}-${edge.after}`} class=${kind(edge)}
      d=${bend(x(edge.start), y(edge.before), x(edge.x), y(edge.after), x(edge.end))} />`)}
    ${visible.map((row, offset) => html`<${Node} key=${row.id} row=${row} x=${x(row.x)} y=${y(first + offset)} />`)}
  </svg>`;
}

// Right, down and right again, with round corners.
function bend(x0, y0, turn, y1, x1) {
  const radius = Math.max(0, Math.min(ROUND, turn - x0, x1 - turn, (y1 - y0) / 2));
  return `M${x0} ${y0}H${turn - radius}q${radius} 0 ${radius} ${radius}V${y1 - radius}q0 ${radius} ${radius} ${radius}H${x1}`;
}

function Node({ row, x, y }) {
  const kind = `node ${stateClass(row.state)}${row.critical ? " critical" : ""}`;
  const radius = row.parent ? 3.5 : 4.5;
  if (row.state === "failed") {
    return html`<path class=${kind} d=${`M${x - 4} ${y - 4}l8 8m0 -8l-8 8`} />`;
  }
  return html`<circle class=${kind} cx=${x} cy=${y} r=${radius} />`;
}

function Times({ slice, end, now, live }) {
  const { first, last, visible } = slice;
  const height = (last - first) * ROW;
  return html`<svg class="times" viewBox="0 0 ${WIDE} ${Math.max(1, height)}" preserveAspectRatio="none" aria-hidden="true"
    style=${{ top: `${first * ROW}px`, height: `${height}px` }}>
    ${visible.map((row, offset) => html`<${Bars} key=${row.id} row=${row} y=${offset * ROW} end=${end} now=${now} />`)}
    ${live ? html`<line class="now" x1=${(WIDE * now) / end} x2=${(WIDE * now) / end} y1="0" y2=${height} />` : null}
  </svg>`;
}

function Bars({ row, y, end, now }) {
  const shapes = [];
  const rect = (kind, start, stop, top = 7, tall = 12) =>
    shapes.push(html`<${Rect} kind=${kind} start=${start} stop=${stop} end=${end} y=${y + top} height=${tall} />`);
  const ends = row.finished ?? row.expected?.[1] ?? null;
  if (ends !== null && row.slack > 0 && row.state !== "cancelled") rect("slack", ends, Math.min(end, ends + row.slack), 10, 6);
  if (row.expected && row.started === null) rect("expected", ...row.expected);
  if (row.expected && row.started !== null) rect("expected", row.started, row.expected[1]);
  if (row.children && row.started !== null) rect("fan", row.started, row.finished ?? now, 11, 4);
  for (const part of row.waits) rect(part.kind, part.start, part.end, ...(part.kind === "dependencies" ? [12, 2] : []));
  for (const bar of row.bars) {
    const stop = bar.end ?? now;
    for (const part of bar.parts) rect(part.kind, part.start, part.end);
    if (bar.end === null) rect("running", bar.parts.at(-1)?.end ?? bar.start, now);
    if (bar.end !== null && bar.outcome !== "done") rect("broken", bar.start, stop, 17, 3);
  }
  if (row.critical && row.started !== null) rect("onpath", row.started, row.finished ?? now, 21, 2);
  return shapes;
}

function Rect({ kind, start, stop, end, y, height }) {
  const x = (WIDE * start) / end;
  const width = Math.max(LEAST, (WIDE * stop) / end - x);
  return html`<rect class=${`bar-${kind}`} x=${x} y=${y} width=${width} height=${height} />`;
}

// The end of an axis of so many seconds: it changes seldom while they grow.
function axisEnd(seconds, ticks) {
  const step = nice(Math.max(seconds, 0.01) / ticks);
  return step * Math.ceil(Math.max(seconds, 0.01) / step);
}

function nice(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= step * 0.999);
}

export function Legend() {
  const more = [
    ["plan", t("plan_row")],
    ["onpath", t("critical")],
    ["slack", t("slack")],
    ["expected", t("expected")],
    ["broken", stateName("failed")],
  ];
  const kinds = [...PARTS.map((part) => [part, t(`part_${part}`)]), ...more];
  return html`<ul class="legend">
    ${kinds.map(([kind, text]) => html`<li key=${kind}><svg width="14" height="10" aria-hidden="true">
      <rect class=${`bar-${kind}`} x="0.5" y=${THIN.includes(kind) ? 4 : 0.5} width="13" height=${THIN.includes(kind) ? 3 : 9} />
    </svg>${text}</li>`)}
  </ul>`;
}

// The same facts as the picture. `path` returns all rows, if the picture may have some only.
export function Tables({ picture, path }) {
  const isWhole = picture.rows.length === picture.count;
  return html`<${Details} kind="tables" summary=${t("as_table")}>${() => (isWhole ? html`<${TableOf} picture=${picture} />` : html`<${WholeTable} path=${path} status=${picture.status} />`)}<//>`;
}

function WholeTable({ path, status }) {
  const [whole, problem] = useAnswer(path, status);
  return whole ? html`<${TableOf} picture=${whole} />` : problem ? html`<${Problem} error=${problem} />` : t("loading");
}

function TableOf({ picture }) {
  const { rows } = picture;
  const [steps, moreSteps] = useSome(rows);
  const [edges, moreEdges] = useSome(picture.lines);
  const all = useMemo(() => strips(picture), [picture]);
  const [spans, moreSpans] = useSome(all);
  const sums = new Map();
  for (const { kind, start, end } of all) sums.set(kind, (sums.get(kind) ?? 0) + (end ?? picture.seconds) - start);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${t("steps")}>
      <table>
        <caption>${t("steps")}</caption>
        <${Head} keys=${["step", "state", "role", "model", "after", "start_at", "duration", "predicted", "expected_range", "slack", "critical"]} classes=${FIGURES} />
        <tbody>${steps.map((row) => html`<tr key=${row.id}>
          <th scope="row"><bdi>${line(row.id)}</bdi></th><td>${stateName(row.state)}</td><td><bdi>${line(row.role)}</bdi></td>
          <td><bdi>${line(row.model)}</bdi></td><td><bdi>${line(row.depends_on.join(", "))}</bdi></td>
          <td class="figure">${duration(row.started)}</td>
          <td class="figure">${row.started === null ? "–" : row.finished === null ? t("not_ended") : duration(row.finished - row.started)}</td>
          <td class="figure">${duration(row.predicted_seconds)}</td>
          <td class="figure">${row.expected ? row.expected.map(duration).join(" – ") : "–"}</td><td class="figure">${duration(row.slack)}</td>
          <td>${row.critical ? "◆" : ""}</td>
        </tr>`)}</tbody>
      </table>
      ${moreSteps}
      <table>
        <caption>${t("edges")}</caption>
        <${Head} keys=${["before", "later", "reason", "artifact"]} />
        <tbody>${edges.map((edge) => html`<tr key=${`${edge.before}-${edge.after}`}>
          <td><bdi>${line(rows[edge.before].id)}</bdi></td><td><bdi>${line(rows[edge.after].id)}</bdi></td>
          <td>${word("edge", edge.reason)}</td><td><bdi>${line(edge.artifact)}</bdi></td>
        </tr>`)}</tbody>
      </table>
      ${moreEdges}
      ${spans.length ? html`<table>
        <caption>${t("times")}</caption>
        <${Head} keys=${["step", "attempt_number", "part", "start_at", "duration", "state"]} classes=${FIGURES} />
        <tbody>${spans.map((span, at) => html`<tr key=${at}>
          <th scope="row"><bdi>${line(span.step)}</bdi></th><td class="figure">${span.number}</td><td>${t(span.kind === "plan" ? "plan_row" : `part_${span.kind}`)}</td>
          <td class="figure">${duration(span.start)}</td><td class="figure">${span.end === null ? t("not_ended") : duration(span.end - span.start)}</td>
          <td>${span.outcome ? stateName(span.outcome) : ""}</td>
        </tr>`)}</tbody>
      </table>
      ${moreSpans}
      <table>
        <caption>${t("times_sum")}</caption>
        <${Head} keys=${["part", "duration"]} classes=${FIGURES} />
        <tbody>${[...sums].map(([kind, seconds]) => html`<tr key=${kind}><th scope="row">${t(kind === "plan" ? "plan_row" : `part_${kind}`)}</th>
          <td class="figure">${duration(seconds)}</td></tr>`)}</tbody>
      </table>` : null}
    </div>`;
}

// What the bars say: of each step when it waited and for what, and what each attempt did. `end` is null while it lasts.
function strips(picture) {
  const plans = picture.planning.map((bar) => ({ step: "", number: "", kind: "plan", start: bar.start, end: bar.end, outcome: bar.outcome }));
  const own = ({ id, waits, bars }) => [
    ...waits.map((part) => ({ step: id, number: "", ...part })),
    ...bars.flatMap((bar) => {
      const parts = bar.parts.map((part) => ({ step: id, number: bar.number, ...part, outcome: bar.outcome }));
      return bar.end === null ? [...parts, { step: id, number: bar.number, kind: "running", start: parts.at(-1)?.end ?? bar.start, end: null, outcome: bar.outcome }] : parts;
    }),
  ].sort((one, other) => one.start - other.start);
  return [...plans, ...picture.rows.flatMap(own)];
}
