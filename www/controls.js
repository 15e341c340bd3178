/** The small controls that the element shows inside itself when it has the attribute `controls`. */
import { describeProgress } from './progress.js';

export class Controls {
  /** The node to put into the shadow root. */
  root;
  #button;
  #bar;
  #message;

  /** @param {{onStart: () => void, onCancel: () => void}} actions */
  constructor({ onStart, onCancel }) {
    this.root = document.createElement('div');
    this.root.className = 'controls';
    this.root.part = 'controls';
    this.#button = document.createElement('button');
    this.#button.type = 'button';
    this.#button.part = 'button';
    this.#bar = document.createElement('progress');
    this.#bar.part = 'progress';
    this.#bar.setAttribute('aria-label', 'Progress');
    this.#message = document.createElement('p');
    this.#message.part = 'message';
    this.#message.setAttribute('role', 'status');
    this.root.append(this.#button, this.#bar, this.#message);
    this.#button.addEventListener('click', (event) => {
      if (this.#bar.hidden) onStart();
      // The second half of a double click that started it is no wish to cancel.
      else if (event.detail < 2) onCancel();
    });
    this.showState('idle');
  }

  /** @param {string} state of the element */
  showState(state) {
    const busy = state === 'loading' || state === 'generating' || state === 'cancelling';
    this.#bar.hidden = !busy;
    this.#button.textContent = busy ? 'Cancel' : 'Draw';
    this.#button.disabled = state === 'cancelling';
    if (state !== 'error') this.#message.textContent = state === 'cancelling' ? 'Stopping…' : '';
  }

  /** @param {import('./progress.js').Progress} progress */
  showProgress(progress) {
    if (progress.fraction === null) this.#bar.removeAttribute('value');
    else this.#bar.value = progress.fraction;
    this.#message.textContent = describeProgress(progress);
  }

  showError(error) {
    this.#message.textContent = error.code === 'cancelled' ? '' : error.message;
  }
}
