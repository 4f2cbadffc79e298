"use strict";
(() => {
  const root = document.documentElement, byId = (id) => document.getElementById(id);
  root.classList.add("live");

  const rows = [...document.querySelectorAll("#rows tbody tr")], find = byId("find"), count = byId("count");
  const filters = [...document.querySelectorAll("button.filter")];
  let rule = "";
  const matches = (row) => {
    const rules = row.dataset.rules.split(" ");
    return rule === "" || (rule === "+" ? row.dataset.rules === "" : rules.includes(rule));
  };
  const show = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(matches(row) && words.every((word) => text.includes(word)));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length} layouts`;
    for (const button of filters) button.setAttribute("aria-pressed", String(button.dataset.rule === rule));
  };
  for (const button of filters) {
    button.addEventListener("click", () => { rule = rule === button.dataset.rule ? "" : button.dataset.rule; show(); });
  }
  find.addEventListener("input", show);
  show();

  const held = byId("loads"), form = document.querySelector(".sliders");
  if (!held || !form) return;
  const loads = JSON.parse(held.textContent);
  const plot = byId("points"), frontier = byId("frontier"), said = byId("what-if"), reset = byId("reset");
  const before = { points: [...plot.children], frontier: [...frontier.children] };
  const inputs = [...form.querySelectorAll("input")];
  const moving = loads.axes.map((axis) => axis.values.length > 1);
  const svg = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const place = (value, low, high) => (100 * (Math.log10(value) - low)) / (high - low);
  const words = (value) => Number(value.toPrecision(3)).toLocaleString("en-US");

  const circles = (point) => {
    const [left, right, bottom, top] = loads.ends;
    const drawn = point.speeds.map(([layout, token, gives, carries]) => {
      const kind = layout === point.chosen ? "chosen" : carries ? "runs" : "queues";
      const [name, pool] = loads.layouts[layout];
      return {
        kind, x: place(1 / token, left, right), y: 100 - place(gives, bottom, top),
        title: `${name} on ${pool}: ${words(gives)} tok/s per GPU, ${words(token * 1000)} ms per token${kind === "queues" ? ", requests queue" : ""}`,
      };
    });
    return drawn.sort((one, other) => (one.kind === "chosen") - (other.kind === "chosen"));
  };
  const steps = (drawn) => {
    const best = [];
    for (const one of drawn.filter((each) => each.kind !== "queues").sort((a, b) => b.x - a.x || a.y - b.y)) {
      if (!best.length || one.y < best[best.length - 1].y) best.push(one);
    }
    return best.slice(1).flatMap((next, index) => {
      const own = best[index];
      return [[own.x, own.y, next.x, own.y], [next.x, own.y, next.x, next.y]];
    });
  };
  const draw = (point) => {
    const drawn = circles(point);
    plot.replaceChildren(...drawn.map((one) => {
      const circle = svg("circle", { class: one.kind, cx: `${one.x}%`, cy: `${one.y}%`, r: one.kind === "chosen" ? 9 : 5 });
      const title = svg("title", {});
      title.textContent = one.title;
      circle.append(title);
      return circle;
    }));
    frontier.replaceChildren(...steps(drawn).map(([x1, y1, x2, y2]) => svg("line", { x1: `${x1}%`, y1: `${y1}%`, x2: `${x2}%`, y2: `${y2}%` })));
  };
  const tell = (point) => {
    const bold = document.createElement("b"), rest = document.createElement("span");
    if (point.words) {
      const [output, first, token] = point.words, [name, pool, gpus] = loads.layouts[point.chosen];
      bold.textContent = name;
      rest.textContent = `on ${gpus} GPUs of ${pool}: ${output} tok/s, first token after ${first}, then ${token} per token`
        + (point.carriesLoad ? "." : "; requests queue.");
    } else {
      bold.textContent = "No plan for this load";
      rest.textContent = point.problem;
    }
    said.replaceChildren(bold, rest);
  };
  const move = () => {
    const chosen = [];
    let next = 0;
    for (const axis of moving) chosen.push(axis ? Number(inputs[next++].value) : 0);
    const at = chosen.reduce((sum, value, axis) => sum * loads.axes[axis].values.length + value, 0);
    for (const input of inputs) {
      const shown = input.dataset.words.split("|")[Number(input.value)];
      input.setAttribute("aria-valuetext", shown);
      input.parentElement.querySelector("output").textContent = shown;
    }
    const home = chosen.every((value, axis) => value === loads.base[axis]);
    reset.disabled = home;
    root.classList.toggle("elsewhere", !home);
    if (home) {
      plot.replaceChildren(...before.points);
      frontier.replaceChildren(...before.frontier);
    } else {
      draw(loads.points[at]);
    }
    tell(loads.points[at]);
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const input of inputs) input.addEventListener("input", move);
  reset.addEventListener("click", () => {
    for (const input of inputs) input.value = input.dataset.base;
    move();
    inputs[0].focus();
  });
  for (const input of inputs) input.value = input.dataset.base;
  move();
})();
