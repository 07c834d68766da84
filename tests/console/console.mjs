// Looks at every page of the console of a running cluster in Chromium: nothing is asked of another host, no script fails, axe finds
// nothing in light or dark, and the keyboard alone leads to everything. It guards what the tests in Rust cannot see: a policy that keeps
// out our own scripts, colours that cannot be read, a page that loses the focus when a part of it is fetched again.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { join } from "node:path";

const modules = createRequire(join(process.env.MONETA_MODULES, "console.cjs"));
const { chromium } = modules("playwright-core");
const axe = readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");

const PATIENCE = 60_000;
const APP = "default";
const ENVIRONMENT = "default";

// Where the cluster's processes are, as its plan says.
const plan = readFileSync(join(process.env.MONETA_CLUSTER, "plan.toml"), "utf8");
const control = `http://127.0.0.1:${plan.match(/^control = (\d+)$/m)[1]}`;
const processes = plan.split("[[processes]]").slice(1);
const adminOf = (part) => `http://127.0.0.1:${part.match(/\nadmin = (\d+)/)[1]}`;
// A node, a proxy, and a relay, each with a page of its own.
const admins = [...[false, true].map((proxy) => adminOf(processes.find((part) => part.includes(`proxy = ${proxy}`)))), process.env.MONETA_RELAY];
const proxies = processes.filter((part) => /proxy = true/.test(part)).map((part) => Number(part.match(/\nport = (\d+)/)[1]));

// Some items, and reads that go on while pages are looked at.
const ask = (socket, text, isAll) =>
  new Promise((resolve, reject) => {
    let seen = "";
    const take = (piece) => {
      seen += piece;
      if (!isAll(seen)) return;
      socket.off("data", take);
      socket.off("error", reject);
      resolve(seen);
    };
    socket.on("data", take);
    socket.once("error", reject);
    socket.write(text);
  });
const fill = async () => {
  const socket = connect(proxies[0], "127.0.0.1");
  for (let from = 0; from < 20_000; from += 500) {
    let text = "";
    for (let key = from; key < from + 500; key++) {
      const value = `value of ${key} `.repeat(1 + (key % 40));
      text += `set user:${key} 0 3600 ${value.length}\r\n${value}\r\n`;
    }
    await ask(socket, text, (seen) => seen.split("\r\n").length > 500);
  }
  await ask(socket, "set greeting 7 600 12\r\nhello, world\r\n", (seen) => seen.endsWith("\r\n"));
  socket.destroy();
};
let isReading = true;
const sockets = [];
const read = async (port) => {
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  socket.on("error", () => {});
  while (isReading) {
    let text = "";
    for (let count = 0; count < 100; count++) text += `get user:${Math.floor(Math.random() * 22_000)}\r\n`;
    await ask(socket, text, (seen) => seen.split("END\r\n").length > 100);
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
  socket.destroy();
};
await fill();
proxies.forEach((port) => read(port).catch(() => {}));

const browser = await chromium.launchPersistentContext(process.env.MONETA_PROFILE, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  viewport: { width: 1280, height: 860 },
  colorScheme: "light",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
browser.setDefaultTimeout(PATIENCE);
// Whatever ends it: what was found until then is told.
const faults = [];
process.on("exit", () => console.error([...new Set(faults)].join("\n")));
browser.on("request", (request) => {
  const url = request.url();
  if (![control, ...admins].some((own) => url.startsWith(`${own}/`)) && !url.startsWith("data:")) faults.push(`asks ${url}`);
});
browser.on("weberror", (error) => faults.push(`a script fails: ${error.error()}`));
const page = browser.pages()[0] ?? (await browser.newPage());
page.on("console", (message) => {
  // A page that is left gives up what it waits for.
  if (message.type() === "error" && !/ERR_ABORTED|ERR_INCOMPLETE_CHUNKED|404/.test(message.text())) faults.push(`${page.url()}: ${message.text()}`);
});

const open = async (path) => {
  const answer = await page.goto(control + path, { waitUntil: "load" });
  assert.equal(answer.status(), 200, path);
  await settled();
};
// What nodes say has come, and charts are drawn.
const settled = async () => {
  await page.waitForFunction(() => ![...document.querySelectorAll("main .empty")].some((part) => part.checkVisibility() && part.textContent.startsWith("Asking")));
  await page.waitForFunction(() => [...document.querySelectorAll(".chart")].every((chart) => chart.querySelector("canvas")));
};
const check = async (name) => {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
    for (const { id, help, nodes } of found.violations) faults.push(`${name}, ${scheme}: ${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html + " " + node.any.map((any) => any.message).join("; ")).join(" | ")}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
};
const shots = process.env.MONETA_SHOTS;
const shoot = async (name, scheme = "light", fullPage = false) => {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.emulateMedia({ colorScheme: scheme });
  await page.mouse.move(1, 1);
  await page.screenshot({ path: join(shots, `${name}.png`), animations: "disabled", fullPage });
  await page.emulateMedia({ colorScheme: "light" });
};

// What renewals tell comes with them, and a chart takes two points to be one.
await page.goto(`${control}/`);
assert.equal(page.url(), `${control}/console/${ENVIRONMENT}`);
const series = async () => (await (await fetch(`${control}/console/${ENVIRONMENT}/series`)).json()).gets;
for (const begun = Date.now(); (await series()).filter((gets) => gets > 0).length < (shots ? 6 : 2); ) {
  assert(Date.now() - begun < 3 * PATIENCE, "the nodes' reads are not on the chart");
  await new Promise((resolve) => setTimeout(resolve, 500));
}

await open(`/console/${ENVIRONMENT}`);
await check("overview");
await shoot("overview");
await shoot("overview-dark", "dark");

// By the keyboard alone, from here to an app, an instance and back.
await page.keyboard.press("Tab");
assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
await page.keyboard.press("Enter");
await page.keyboard.press("/");
assert.equal(await page.evaluate(() => document.activeElement.id), "filter");
await page.keyboard.type(APP);
await Promise.all([page.waitForURL(/filter=default/), page.keyboard.press("Enter")]);
await page.keyboard.press("j");
await Promise.all([page.waitForURL(`**/apps/${APP}`), page.keyboard.press("Enter")]);
await settled();
await check("app");
await shoot("app");
await page.keyboard.press("j");
const link = await page.evaluate(() => document.activeElement.getAttribute("href"));
assert.match(link, /\/instances\//);
// A part of the page is fetched again under the focus, which stays.
await page.evaluate(() => htmx.trigger(document.body, "fleet"));
await page.waitForFunction((link) => document.activeElement?.getAttribute("href") === link, link);
await Promise.all([page.waitForURL("**/instances/*"), page.keyboard.press("Enter")]);
await settled();
await page.waitForSelector("#regions");
await check("instance");
await shoot("instance", "light", true);
await page.keyboard.press("?");
assert(await page.evaluate(() => document.getElementById("keys").open));
await check("keys");
await page.keyboard.press("Escape");
for (const [key, url] of [["k", "key"], ["p", "properties"], ["j", "jobs"], ["a", "audit"], ["q", "query"]]) {
  await page.keyboard.press("g");
  await Promise.all([page.waitForURL(`**/${url}`), page.keyboard.press(key)]);
  await settled();
  await check(url);
}
await page.keyboard.press("/");
await page.keyboard.type('zone == "a" || kind == "proxy"');
await Promise.all([page.waitForURL(/where=/), page.keyboard.press("Enter")]);
await page.waitForSelector("table");
await check("an answer");
await shoot("query");
await page.keyboard.press("t");
assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
await page.keyboard.press("t");

// A key, and what each copy has of it.
await open(`/console/${ENVIRONMENT}/key`);
await page.fill("input[name=key]", "greeting");
await page.check("input[name=value]");
await Promise.all([page.waitForEvent("load"), page.keyboard.press("Enter")]);
await page.waitForSelector(".held");
assert.match(await page.textContent("main"), /All 3 copies have it, at one version/);
assert.match(await page.textContent("main"), /hello, world/);
await check("a key");
await shoot("key");

// A property with its versions, and a rollout that waits for its operator.
const tell = async (method, path, body) => {
  const answer = await fetch(`${control}/v1/${ENVIRONMENT}/${path}`, { method, body: JSON.stringify(body) });
  assert.equal(answer.status, 200, `${method} ${path}: ${await answer.clone().text()}`);
  return answer.json();
};
await tell("PUT", "properties/global/idle_timeout", { value: "5m", why: "a test of the console" });
await tell("PUT", "properties/global/idle_timeout", { value: "7m", why: "another value" });
await tell("PUT", "properties/zone=a/read_fallback", { value: "error", why: "a test of the console" });
await tell("POST", "rollouts", { scope: "global", name: "max_connections", value: 900, manual: true, why: "a test of the console" });
await open(`/console/${ENVIRONMENT}/properties`);
await page.waitForFunction(() => /max_connections/.test(document.querySelector("main").textContent));
assert.match(await page.textContent("main"), /7m/);
await check("properties with values and a rollout");
await shoot("properties", "light", true);

// A job whose tasks nobody takes.
const tasks = ["a0", "a1", "b0"].map((name) => ({ name }));
await tell("PUT", "jobs/look", { kind: "of-a-test", app: APP, tasks, why: "a test of the console" });
await open(`/console/${ENVIRONMENT}/jobs`);
await check("jobs");
await Promise.all([page.waitForURL("**/jobs/look"), page.click("a:has-text('look')")]);
await settled();
assert.match(await page.textContent("main"), /b0/);
await check("a job");
await shoot("job");

// An operator's word, told to a page that is looked at without being loaded again.
await page.goto(control + link);
await settled();
await page.selectOption("select[name=status]", "OUT_OF_SERVICE");
await page.fill("input[name=why]", "a test of the console");
const other = await browser.newPage();
await other.goto(`${control}/console/${ENVIRONMENT}/apps/${APP}`);
await Promise.all([page.waitForEvent("load"), page.click("button:has-text('Set')")]);
await other.bringToFront();
await other.waitForFunction(() => document.getElementById("live").textContent.includes("out of service"));
await other.close();
await open(`/console/${ENVIRONMENT}/audit`);
assert.match(await page.textContent("main"), /a test of the console/);
await shoot("audit");
await page.goto(control + link);
await settled();
await page.selectOption("select[name=status]", "");
await Promise.all([page.waitForEvent("load"), page.click("button:has-text('Set')")]);

// The page of each process: its numbers come, and go on coming.
for (const [at, name] of ["a node", "a proxy", "a relay"].entries()) {
  await page.goto(`${admins[at]}/`, { waitUntil: "load" });
  await page.waitForFunction(() => {
    const lines = [...document.querySelectorAll("#now polyline")];
    return lines.length > 4 && lines.filter((line) => line.getAttribute("points")?.includes(" ")).length > 4;
  });
  await check(`the page of ${name}`);
}

await open("/log-in");
await check("the log-in");

// As it was before that.
await open(`/console/${ENVIRONMENT}?at=0s`);
assert.match(await page.textContent("main"), /As it was at/);
await check("the past");

isReading = false;
sockets.forEach((socket) => socket.destroy());
await browser.close();
if (faults.length) process.exit(1);
console.log("the console: every page seen, in light and dark, by keyboard; nothing found");
process.exit(0);
