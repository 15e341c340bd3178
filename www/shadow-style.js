/** The style of the element's shadow root, as a constructed sheet: allowed by a strict Content-Security-Policy. */
const CSS = `
:host {
  display: inline-block;
  position: relative;
  max-width: 100%;
  vertical-align: bottom;
  --_accent: var(--latent-canvas-accent, #5b5bd6);
}
:host([hidden]) { display: none; }
canvas { display: block; width: 100%; height: auto; }
[hidden] { display: none !important; }
.controls {
  display: grid;
  gap: 0.5em;
  justify-items: center;
  padding: 0.75em;
  font: inherit;
}
button {
  font: inherit;
  min-height: 2.25em;
  padding: 0.25em 1.25em;
  border: 0;
  border-radius: 0.5em;
  background: var(--_accent);
  color: #fff;
  cursor: pointer;
}
button:focus-visible { outline: 2px solid var(--_accent); outline-offset: 2px; }
progress { width: 100%; accent-color: var(--_accent); }
p { margin: 0; }
/* A long message is as wide as the picture and does not blow it up. */
canvas:not([hidden]) ~ .controls { justify-items: stretch; justify-content: stretch; }
canvas:not([hidden]) ~ .controls button { justify-self: center; }
canvas:not([hidden]) ~ .controls p { width: 0; min-width: 100%; overflow-wrap: anywhere; }
`;

let sheet = null;

/** @returns {CSSStyleSheet} one sheet for all elements of the page */
export function shadowStyle() {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(CSS);
  }
  return sheet;
}
