// Follows a job over its websocket. The page was rendered at seq = n; the socket is asked for what came after n, so
// that nothing is missed and nothing comes twice. Events are nudges: curves and figures are then fetched as rows.
"use strict";

(function () {
  const source = document.querySelector("[data-socket]");
  if (!source) return;

  const REFUSED = new Set([4401, 4404]); // the link was revoked, or the job is not ours
  const HEAD_EVERY = 1000;
  let seq = Number(source.dataset.seq);
  let socket = null;
  let tries = 0;
  let downSince = null;
  let waiting = null;
  let headTimer = null;
  let headAt = 0;

  function show(state, words) {
    const dot = document.querySelector("[data-live]"); // another one after the way back to this page
    if (!dot) return;
    dot.dataset.state = state;
    if (dot.textContent !== words) dot.textContent = words;
  }

  function isOver() {
    const head = document.getElementById("head");
    return head.dataset.ended === "yes" && head.dataset.proving !== "yes";
  }

  function connect() {
    waiting = null;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    socket = new WebSocket(`${scheme}//${location.host}${source.dataset.socket}?after=${seq}`);
    socket.onopen = () => {
      tries = 0;
      downSince = null;
      show("live", "live");
    };
    socket.onmessage = (message) => take(JSON.parse(message.data));
    socket.onclose = (event) => {
      socket = null;
      if (REFUSED.has(event.code)) return show("finished", "no longer available");
      if (isOver()) return show("finished", "finished");
      retry();
    };
  }

  function retry() {
    downSince = downSince || new Date();
    const clock = downSince.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
    show("reconnecting", `reconnecting since ${clock}`);
    const wait = Math.min(10000, 500 * 2 ** tries) * (0.75 + Math.random() / 2);
    tries += 1;
    waiting = setTimeout(connect, wait);
  }

  function take(event) {
    if (event.seq <= seq) return;
    seq = event.seq;
    document.dispatchEvent(new CustomEvent("job:event", { detail: event }));
    if (event.type !== "iteration") list(event);
    refreshHead(event.type === "iteration" ? HEAD_EVERY : 150);
  }

  // At most once a second for iterations, at once for anything that changed the job; always once more at the end.
  function refreshHead(every) {
    if (headTimer && every >= HEAD_EVERY) return;
    clearTimeout(headTimer);
    headTimer = setTimeout(
      () => {
        headTimer = null;
        headAt = Date.now();
        htmx.trigger("#head", "moved");
      },
      Math.max(every === HEAD_EVERY ? headAt + every - Date.now() : every, 0),
    );
  }

  // A job that has ended is left alone; one that was resumed is followed again.
  document.addEventListener("htmx:afterSettle", () => {
    if (isOver() && socket) socket.close();
    else if (!isOver() && !socket && !waiting) connect();
  });

  function list(event) {
    const events = document.querySelector("[data-events]");
    if (!events) return;
    const item = document.createElement("li");
    item.className = event.level;
    for (const [kind, text] of [
      ["quiet number", event.seq],
      ["nowrap quiet", "just now"],
      ["tag", event.type.replaceAll("_", " ")],
      ["", event.message],
    ]) {
      const part = document.createElement("span");
      part.className = kind;
      part.textContent = text;
      item.append(part);
    }
    events.prepend(item);
  }

  if (!isOver()) connect();
})();
