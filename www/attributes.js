/** The element's attributes and the properties that reflect them. */

/** @type {Record<string, {attribute: string, read: (text: string|null) => unknown}>} property -> attribute */
export const REFLECTED = {
  activations: { attribute: 'activations', read: (value) => value ?? 'auto' },
  alt: { attribute: 'alt', read: text },
  attention: { attribute: 'attention', read: (value) => value ?? 'auto' },
  autotune: { attribute: 'autotune', read: (value) => value ?? 'auto' },
  budget: { attribute: 'budget', read: nullable },
  engine: { attribute: 'engine', read: (value) => value ?? 'auto' },
  guidanceScale: { attribute: 'guidance-scale', read: number },
  height: { attribute: 'height', read: number },
  loading: { attribute: 'loading', read: (value) => (value === 'eager' ? 'eager' : 'lazy') },
  model: { attribute: 'model', read: nullable },
  negativePrompt: { attribute: 'negative-prompt', read: text },
  prompt: { attribute: 'prompt', read: text },
  scheduler: { attribute: 'scheduler', read: nullable },
  seed: { attribute: 'seed', read: (value) => number(value) ?? -1 },
  steps: { attribute: 'steps', read: (value) => number(value) ?? 20 },
  vae: { attribute: 'vae', read: (value) => value ?? 'auto' },
  width: { attribute: 'width', read: number },
};

function text(value) {
  return value ?? '';
}

function nullable(value) {
  return value === null || value === '' ? null : value;
}

/** An empty or unreadable number stays NaN, so that generate() refuses it instead of taking a default. */
function number(value) {
  if (value === null) return null;
  return value.trim() === '' ? NaN : Number(value);
}

/** Defines the reflecting properties on `prototype`. Setting null or undefined removes the attribute. */
export function reflectAttributes(prototype) {
  for (const [property, { attribute, read }] of Object.entries(REFLECTED)) {
    Object.defineProperty(prototype, property, {
      configurable: true,
      enumerable: true,
      get() {
        return read(this.getAttribute(attribute));
      },
      set(value) {
        if (value === null || value === undefined) this.removeAttribute(attribute);
        else this.setAttribute(attribute, String(value));
      },
    });
  }
  Object.defineProperty(prototype, 'controls', {
    configurable: true,
    enumerable: true,
    get() {
      return this.hasAttribute('controls');
    },
    set(value) {
      this.toggleAttribute('controls', Boolean(value));
    },
  });
}

/**
 * A property set before the element was defined lies on the object itself and hides the accessor: it is taken off
 * and set again.
 */
export function adoptProperties(element) {
  for (const property of [...Object.keys(REFLECTED), 'controls']) {
    if (!Object.hasOwn(element, property)) continue;
    const value = element[property];
    delete element[property];
    element[property] = value;
  }
}
