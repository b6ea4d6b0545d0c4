// Passkeys: a form that carries the browser's answer to what the site asks it to make or to sign.
"use strict";

const known = () => window.PublicKeyCredential?.parseCreationOptionsFromJSON !== undefined;

for (const form of document.querySelectorAll("form[data-passkey]")) {
  if (!known()) continue; // hidden as it was: the browser can't
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    if (form.elements.answer.value) return;
    event.preventDefault();
    ask(form).catch((error) => show(form, error));
  });
}

async function ask(form) {
  const token = form.elements.csrfmiddlewaretoken.value;
  const asked = await fetch(form.dataset.passkey, { method: "POST", headers: { "X-CSRFToken": token } });
  const options = await asked.json();
  if (!asked.ok) throw new Error(options.problem ?? "The site did not answer.");
  const answer = form.hasAttribute("data-new")
    ? await navigator.credentials.create({
        publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options.publicKey),
      })
    : await navigator.credentials.get({
        publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options.publicKey),
      });
  form.elements.answer.value = JSON.stringify(answer.toJSON());
  form.submit();
}

// A person who closes the browser's window has changed their mind, which is no fault.
function show(form, error) {
  const quiet = error.name === "NotAllowedError" || error.name === "AbortError";
  const known = error.name === "InvalidStateError";
  const place = form.querySelector("[data-message]");
  place.textContent = known ? "This device has a passkey of yours already." : quiet ? "Nothing was done." : error.message;
}
