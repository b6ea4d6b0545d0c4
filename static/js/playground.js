// Asks each candidate by itself and shows its answer as it comes. The page that was posted holds one form for each; the
// server answers a form once, so that a page which is loaded again pays nothing.
"use strict";

function shown(form, html) {
  const place = form.parentElement;
  place.innerHTML = html;
  htmx.process(place);
}

function refused(form, words) {
  const line = document.createElement("p");
  line.className = "problem";
  line.setAttribute("role", "alert");
  line.textContent = words;
  form.querySelector("[data-stop]").parentElement.replaceWith(line);
}

// Calls ``received`` with each piece of an answer. One that does not come in pieces is a part of the page as a whole.
async function readPieces(answer, received) {
  if (!(answer.headers.get("content-type") || "").startsWith("application/x-ndjson")) return received({ html: await answer.text() });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) received(JSON.parse(line));
  }
}

async function ask(form) {
  const stop = new AbortController();
  form.querySelector("[data-stop]").addEventListener("click", () => stop.abort());
  const text = form.querySelector("[data-text]");
  let done = false, began = false;
  try {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { "HX-Request": "true" }, signal: stop.signal });
    began = true;
    await readPieces(answer, (piece) => {
      if (piece.text) text.append(piece.text);
      if (piece.html) {
        done = true;
        shown(form, piece.html);
      }
    });
    if (!done) refused(form, "The connection ended before the answer was whole. Its trace has what it cost.");
  } catch (error) {
    if (!done) refused(form, stop.signal.aborted ? `Stopped${began ? ". Its trace has what it cost" : " before an answer began"}.` : "The site did not answer. Ask again.");
  }
}

for (const form of document.querySelectorAll("[data-ask]")) ask(form);
