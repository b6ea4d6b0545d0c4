// Asks the cells of a table, rows by candidates, a few at once. The page that was posted holds the table; the server
// answers a cell once, so that a page which is loaded again pays nothing.
"use strict";

const CELLS_AT_ONCE = 4;

class CellRun {
  constructor(form) {
    this.form = form;
    this.table = form.parentElement.querySelector("table");
    this.cells = [...this.table.querySelectorAll("[data-cell]")];
    this.waiting = [...this.cells];
    this.ended = 0;
    this.stopping = new AbortController();
  }

  said(cell, words) {
    const line = document.createElement("p");
    line.className = "quiet";
    line.textContent = words;
    cell.replaceChildren(line);
  }

  progress() {
    const bar = this.form.querySelector("[data-progress]"), all = this.cells.length;
    bar.max = all;
    bar.value = this.ended;
    const stopped = this.stopping.signal.aborted;
    const done = this.ended === all;
    this.form.querySelector("[data-status]").textContent = stopped ? `Stopped. ${this.asked} of ${all} were asked.` : done ? `All ${all} answers are there.` : `${this.ended} of ${all} answers`;
    this.form.querySelector("[data-stop]").hidden = stopped || done;
  }

  get asked() {
    return this.cells.length - this.cells.filter((cell) => cell.dataset.cell === "left").length;
  }

  stop() {
    for (const cell of this.waiting.splice(0)) {
      cell.dataset.cell = "left";
      this.said(cell, "Not asked");
    }
    this.stopping.abort();
    this.progress();
  }

  body(cell) {
    const { place, row, at } = cell.dataset;
    const { candidate, prompt } = this.table.querySelector(`thead [data-place="${place}"]`).dataset;
    const body = new FormData(this.form);
    for (const [name, value] of Object.entries({ place, row, at, candidate, prompt })) body.set(name, value);
    return body;
  }

  total(place, piece) {
    const cell = this.table.querySelector(`[data-total="${place}"]`);
    if (!piece.total || Number(cell.dataset.ended || 0) > piece.ended) return; // a later one came first
    cell.dataset.ended = piece.ended;
    cell.innerHTML = piece.total;
  }

  async ask(cell) {
    const text = document.createElement("div");
    text.className = "answer coming";
    this.said(cell, "Asking …");
    cell.append(text);
    let whole = false;
    try {
      const answer = await fetch(this.form.action, { method: "POST", body: this.body(cell), headers: { "HX-Request": "true" }, signal: this.stopping.signal });
      await readPieces(answer, (piece) => {
        if (piece.text) text.append(piece.text);
        if (!piece.html) return;
        whole = true;
        cell.innerHTML = piece.html;
        this.total(cell.dataset.place, piece);
      });
      if (!whole) this.said(cell, "The connection ended before the answer was whole. Its trace has what it cost.");
    } catch (error) {
      if (!whole) this.said(cell, this.stopping.signal.aborted ? "Stopped. Its trace has what it cost." : "The site did not answer.");
    }
    this.ended += 1;
    this.progress();
  }

  async worker() {
    while (this.waiting.length) await this.ask(this.waiting.shift());
  }

  begin() {
    this.form.querySelector("[data-stop]").addEventListener("click", () => this.stop());
    this.progress();
    for (let number = 0; number < CELLS_AT_ONCE; number += 1) this.worker();
  }
}

for (const form of document.querySelectorAll("[data-cells]")) new CellRun(form).begin();
