/* SPDX-License-Identifier: MIT */
/* Draws the charts and the heat map of what is in #data. All that it shows is in the tables as well. */
(() => {
"use strict";

const wear = JSON.parse(document.getElementById("data").textContent);
const list = (o, key) => o && Array.isArray(o[key]) ? o[key] : [];
const num = v => typeof v === "number" && isFinite(v) ? v : 0;

/* ---- numbers for people: as in the tables ---- */

const commas = v => String(Math.round(v)).replace(/\B(?=(\d{3})+$)/g, ",");
const size = v => {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
	let u = 0;

	while (u < 5 && v >= 1024) {
		v /= 1024;
		u++;
	}
	return u ? v.toFixed(1) + " " + units[u] : v + " B";
};
/* of an axis: no more digits than it takes */
const tickSize = v => v == null ? "" : size(v).replace(".0 ", " ");
const day = s => new Date(s * 1000).toISOString().slice(0, 10);
const stamp = s => s >= 1577836800 ? new Date(s * 1000).toLocaleString() : s ? "clock not set" : "no time";

/* ---- elements ---- */

const el = (name, props, ...children) => {
	const e = Object.assign(document.createElement(name), props);

	e.append(...children);
	return e;
};
const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const redraws = []; // what to do when the colours change

const radios = (name, title, choices, chosen) => {
	const set = el("fieldset", {}, el("legend", {textContent: title}));

	for (const [value, text] of choices) {
		const input = el("input", {type: "radio", name, value, checked: value === choices[0][0]});

		input.addEventListener("change", () => chosen(value));
		set.append(el("label", {}, input, text));
	}
	return set;
};

const key = (name, text) => {
	const i = el("i");

	i.style.background = `var(--${name})`;
	return el("span", {}, i, text);
};

/* ---- charts ---- */

/* Steps of 1, 2, 4, ... 512 of KiB, MiB, ... for an axis of bytes */
const powers = [];
for (let p = 0; p < 60; p++)
	powers.push(2 ** p);

/* A logarithmic scale with few, round ticks: powers of the first step of which at most six fit. */
const logScale = {distr: 3, log: 10, range: (u, min, max) => min > 0 ? [min / 1.6, max * 1.6] : [1, 10]};
const logSplits = steps => (u, axis, min, max) => {
	const factor = steps.find(f => Math.log(max / min) / Math.log(f) <= 6) || steps[steps.length - 1], splits = [];

	for (let k = Math.ceil(Math.log(min) / Math.log(factor) - 1e-9); factor ** k <= max; k++)
		splits.push(factor ** k);
	return splits;
};
const logBytes = {splits: logSplits([2, 4, 32, 1024]), filter: (u, v) => v};
const logSeconds = {splits: logSplits([10, 100]), filter: (u, v) => v};

/* more: of the vertical axis */
const axes = (formatX, formatY, more) => {
	const style = {stroke: color("soft"), font: "12px system-ui, sans-serif", grid: {stroke: color("grid"), width: 1},
		ticks: {stroke: color("line"), width: 1}};

	return [{...style, space: 70, values: (u, v) => v.map(formatX), ...(formatX.incrs ? {incrs: formatX.incrs} : {})},
		{...style, size: 72, values: (u, v) => v.map(formatY), ...more}];
};

/*
 * spec: label; xs, ys (columns); options(): of uPlot; describe(i): a sentence on point i. The chart takes the focus, and
 * arrow keys walk along it.
 */
function chart(spec) {
	const box = el("div", {className: "chart", tabIndex: 0});
	const read = el("p", {className: "read"});
	let plot, at = -1;
	const last = spec.xs.length - 1;
	const show = i => read.textContent = i >= 0 ? spec.describe(i) : spec.hint;
	const size = () => ({width: Math.max(200, box.clientWidth), height: spec.height});
	const draw = () => {
		if (plot)
			plot.destroy();
		plot = new uPlot({...size(), legend: {show: false}, cursor: {y: false, drag: {x: false, y: false}},
			hooks: {setCursor: [u => {
				if (u.cursor.idx != null && u.cursor.left >= 0)
					show(at = u.cursor.idx);
			}]}, ...spec.options()}, [spec.xs, ...spec.ys()], box);
	};
	const go = i => {
		at = Math.max(0, Math.min(last, i));
		plot.setCursor({left: plot.valToPos(spec.xs[at], "x"), top: 0});
		show(at);
	};

	box.setAttribute("role", "group");
	box.setAttribute("aria-label", spec.label + ". Arrow keys tell the figures; the table below has them all.");
	read.setAttribute("aria-live", "polite");
	box.addEventListener("keydown", e => {
		const to = {ArrowLeft: at < 0 ? last : at - 1, ArrowRight: at + 1, Home: 0, End: last}[e.key];

		if (to === undefined || e.ctrlKey || e.altKey || e.metaKey)
			return;
		e.preventDefault();
		go(to);
	});
	spec.into.append(box, read);
	draw();
	show(-1);
	new ResizeObserver(() => plot.setSize(size())).observe(box);
	redraws.push(draw);
	return draw;
}

/* Days without a line had no write; those of a clock that was not set have no place. */
function historyDays() {
	const by = new Map();

	for (const d of list(wear.history, "days")) {
		if (!(d.unix_day > 0 && d.unix_day < 1e5))
			continue;
		const sum = by.get(d.unix_day) || {absorbed: 0, written: 0, commits: 0};

		sum.absorbed += num(d.absorbed_bytes);
		sum.written += num(d.written_bytes);
		sum.commits += num(d.commits);
		by.set(d.unix_day, sum);
	}
	const days = [...by.keys()].sort((a, b) => a - b), all = [];

	if (days.length && days[days.length - 1] - days[0] <= 4000)
		for (let d = days[0]; d <= days[days.length - 1]; d++)
			all.push([d, by.get(d) || {absorbed: 0, written: 0, commits: 0}]);
	else
		days.forEach(d => all.push([d, by.get(d)]));
	return all;
}

function drawHistory(into) {
	const days = historyDays();
	let log = false;

	if (days.length < 2) {
		into.append(el("p", {textContent: "A chart takes two days at least: see the table."}));
		return;
	}
	const value = v => log && v <= 0 ? null : v;
	const formatX = s => day(s);

	formatX.incrs = [1, 2, 7, 14, 28, 56, 91, 182, 364, 728].map(d => d * 86400);
	into.append(el("div", {className: "keys"}, key("absorbed", "programs wrote"), key("written", "reached the card")));
	const scale = radios("scale", "Scale", [["linear", "as it is"], ["log", "logarithmic"]], v => {
		log = v === "log";
		draw();
	});

	const draw = chart({into, height: 260, label: "Bytes a day that programs wrote, and that reached the card",
		hint: "Point at a day, or use the arrow keys.",
		xs: days.map(([d]) => d * 86400),
		ys: () => [days.map(([, d]) => value(d.absorbed)), days.map(([, d]) => value(d.written))],
		describe: i => {
			const [d, v] = days[i];

			return `${day(d * 86400)}: programs wrote ${size(v.absorbed)}, ${size(v.written)} reached the card, ` +
				`${commas(v.commits)} commit${v.commits === 1 ? "" : "s"}.`;
		},
		options: () => ({
			tzDate: s => uPlot.tzDate(new Date(s * 1000), "Etc/UTC"),
			scales: {x: {time: false}, y: log ? logScale : {range: (u, min, max) => [0, max * 1.05 || 1]}},
			axes: axes(formatX, tickSize, log ? logBytes : {incrs: powers}),
			series: [{},
				{stroke: color("absorbed"), fill: log ? undefined : color("absorbed-fill"), width: 2, points: {show: days.length < 100, size: 5}},
				{stroke: color("written"), fill: log ? undefined : color("written-fill"), width: 2, points: {show: days.length < 100, size: 5}}],
		})});
	into.append(scale);
}

function drawCommits() {
	const commits = list(wear.history, "commits");

	if (!commits.length)
		return;
	const xs = commits.map((c, i) => i);
	const number = v => Number.isInteger(v) && commits[v] ? commas(num(commits[v].number)) : "";
	const describe = i => {
		const c = commits[i];

		return `Commit ${commas(num(c.number))}, ${stamp(num(c.unix_seconds))}, ${c.cause}: programs wrote ` +
			`${size(num(c.absorbed_bytes))}, ${size(num(c.written_bytes))} reached the card in ` +
			`${num(c.writable_seconds).toFixed(2)} s, ${commas(num(c.erase_block_visits))} visits.`;
	};
	const dots = (id, title, keyName, values, formatY, more) => {
		const into = document.getElementById(id);
		const formatX = v => number(v);

		formatX.incrs = [1, 2, 4, 8, 16, 32];
		into.append(el("h3", {textContent: title}));
		chart({into, height: 200, label: title, hint: "Point at a commit, or use the arrow keys. The scale is logarithmic.", xs,
			ys: () => [values.map(v => v > 0 ? v : null)], describe,
			options: () => ({
				scales: {x: {time: false, range: [-0.6, commits.length - 0.4]}, y: logScale},
				axes: axes(formatX, formatY, more),
				series: [{}, {stroke: color(keyName), width: 0, paths: () => null,
					points: {show: true, size: 8, width: 0, fill: color(keyName), stroke: color(keyName)}}],
			})});
	};

	dots("sizes", "Bytes that reached the card with each", "written", commits.map(c => num(c.written_bytes)), tickSize, logBytes);
	dots("times", "Time for which the card could be written to", "absorbed", commits.map(c => num(c.writable_seconds)),
		v => v == null ? "" : +v.toFixed(3) + " s", logSeconds);
}

/* ---- heat map ---- */

const STEPS = 6; // and a colour for nothing

/* Bounds of the steps: the same factor each, from 1 to the largest. */
function bounds(max) {
	const all = [];

	for (let k = 1; k <= STEPS; k++)
		all.push(Math.min(max, Math.max(k, Math.ceil(max ** (k / STEPS) - 1e-9))));
	return [...new Set(all)];
}

function heatMap(into, cells, kind) {
	const canvas = el("canvas", {tabIndex: 0}), read = el("p", {className: "read"}), keys = el("div", {className: "keys"});
	let columns = 1, pitch = 8, at = -1;
	const hint = "Point at one, or use the arrow keys.";
	const step = (v, limits) => v <= 0 ? 0 : Math.round((limits.findIndex(b => v <= b) + 1) * STEPS / limits.length);
	const draw = () => {
		const of = kind(), values = cells.map(of.value), limits = bounds(values.reduce((a, b) => Math.max(a, b), 1));
		const width = Math.max(200, into.clientWidth), ratio = window.devicePixelRatio || 1;

		pitch = Math.max(4, Math.min(22, Math.floor(Math.sqrt(width * 420 / cells.length))));
		columns = Math.max(1, Math.floor(width / pitch));
		const rows = Math.ceil(cells.length / columns), ctx = canvas.getContext("2d"), gap = pitch > 4 ? 1 : 0.5;
		const shades = Array.from({length: STEPS + 1}, (_, k) => color("h" + k));

		canvas.width = columns * pitch * ratio;
		canvas.height = rows * pitch * ratio;
		canvas.style.width = columns * pitch + "px";
		canvas.style.height = rows * pitch + "px";
		ctx.scale(ratio, ratio);
		values.forEach((v, i) => {
			ctx.fillStyle = shades[step(v, limits)];
			ctx.fillRect(i % columns * pitch, Math.floor(i / columns) * pitch, pitch - gap, pitch - gap);
		});
		if (at >= 0) {
			ctx.strokeStyle = color("mark");
			ctx.lineWidth = 2;
			ctx.strokeRect(at % columns * pitch - 1, Math.floor(at / columns) * pitch - 1, pitch + 1, pitch + 1);
		}
		keys.replaceChildren(key("h0", "none"), ...limits.map((b, k) => {
			const from = k ? limits[k - 1] + 1 : 1;

			return key("h" + step(b, limits), of.text(from) + (from < b ? " to " + of.text(b) : ""));
		}));
		read.textContent = at >= 0 ? cells[at].text() : hint;
	};
	const go = i => {
		at = Math.max(0, Math.min(cells.length - 1, i));
		draw();
	};

	canvas.setAttribute("role", "img");
	canvas.setAttribute("aria-label", "Heat map of " + commas(cells.length) + " places. Arrow keys tell the figures; tables are below.");
	read.setAttribute("aria-live", "polite");
	canvas.addEventListener("pointermove", e => {
		const r = canvas.getBoundingClientRect();
		const i = Math.floor((e.clientY - r.top) / pitch) * columns + Math.min(columns - 1, Math.floor((e.clientX - r.left) / pitch));

		if (i >= 0 && i < cells.length && i !== at)
			go(i);
	});
	canvas.addEventListener("keydown", e => {
		const to = {ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at < 0 ? 0 : at + columns,
			Home: 0, End: cells.length - 1}[e.key];

		if (to === undefined || e.ctrlKey || e.altKey || e.metaKey)
			return;
		e.preventDefault();
		if (to >= 0 && to < cells.length || at < 0)
			go(to);
	});
	into.append(canvas, keys, read);
	draw();
	new ResizeObserver(() => {
		if (Math.floor(Math.max(200, into.clientWidth) / pitch) !== columns)
			draw();
	}).observe(into);
	redraws.push(draw);
	return draw;
}

function drawHeat() {
	const into = document.getElementById("heat"), eb = wear.erase_blocks || {};
	const visits = list(eb, "visits").map(num), blocks = list(eb, "written_blocks").map(num);
	const per = num(eb.page_units_per_cell) || 1, unit = num(eb.unit_bytes);
	const device = Math.ceil(num(eb.units) / per), draws = [];
	let chosen = "visits";
	const kind = () => chosen === "visits" ? {value: c => c.visits, text: commas} : {value: c => c.bytes, text: size};

	if (!into || !visits.length)
		return;
	const parts = [["", 0, Math.min(device, visits.length), num(eb.disk_offset_bytes)],
		["Log device", device, visits.length, num(eb.log_device_disk_offset_bytes)]].filter(p => p[2] > p[1]);

	into.append(radios("heat", "Show", [["visits", "visits"], ["bytes", "bytes written"]], v => {
		chosen = v;
		draws.forEach(d => d());
	}));
	if (per > 1)
		into.append(el("p", {textContent: `${per} units in a row are one place of this map, to keep the page small.`}));
	for (const [title, from, to, offset] of parts) {
		const map = el("div", {className: "map"});

		if (title)
			map.append(el("h3", {textContent: title}));
		into.append(map);
		draws.push(heatMap(map, visits.slice(from, to).map((v, i) => ({
			visits: v, bytes: num(blocks[from + i]) * 4096,
			text: () => `At ${size(offset + i * per * unit)} of the disk: ${commas(v)} visit${v === 1 ? "" : "s"}, ` +
				`${size(num(blocks[from + i]) * 4096)} written.`,
		})), kind));
	}
}

// open without a script, which would be needed to see the charts instead
document.querySelectorAll("#days-details, #commits-details").forEach(d => d.open = false);
drawHistory(document.getElementById("history"));
drawHeat();
drawCommits();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach(draw => draw()));
})();
