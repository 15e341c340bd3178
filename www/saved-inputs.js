/** Keeps the inputs of a form across a reload. Where storage is denied the page works without. */
const KEY = 'latent-canvas inputs';

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}

/** Fills `form` with what was saved, and saves it on every change. @param {HTMLFormElement} form */
export function keepInputs(form) {
  const saved = read();
  for (const field of form.elements) {
    const value = field.name ? saved[field.name] : undefined;
    if (typeof value !== 'string') continue;
    const before = field.value;
    field.value = value;
    // A choice that an older version of the page offered leaves a select empty.
    if (field.tagName === 'SELECT' && field.selectedIndex < 0) field.value = before;
  }
  form.addEventListener('input', () => saveInputs(form));
}

/** Saves now; for values that a program set, which fire no event. @param {HTMLFormElement} form */
export function saveInputs(form) {
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(new FormData(form))));
  } catch {
    // Private windows and sandboxed frames have no storage; nothing else depends on it.
  }
}
