'use strict';

// Shades of weights, chips of tokens and select elements; part of page.js.

const TICKS = [0, 5, 25, 50, 100];

function readRamp() {
  const probe = document.body.appendChild(document.createElement('i'));
  const [low, high] = ['low', 'high'].map((name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
  });
  probe.remove();
  // Small weights would hardly be seen but for the root; the legend has it too.
  ramp = (weight) => low.map((each, i) => Math.round(each + (high[i] - each) * Math.sqrt(weight)));
}

function shade(button, weight) {
  const color = ramp(weight);
  const [red, green, blue] = color.map((each) => (each / 255) ** 2.2);
  button.style.background = `rgb(${color})`;
  button.style.color = .2126 * red + .7152 * green + .0722 * blue > .18 ? '#000' : '#fff';
}

function paint(canvas, {rows, columns, cells}) {
  canvas.width = columns.length;
  canvas.height = rows.length;
  const image = new ImageData(columns.length, rows.length);
  cells.forEach((cell, i) => image.data.set([...ramp(cell / data.precision), 255], 4 * i));
  canvas.getContext('2d').putImageData(image, 0, 0);
}

function drawLegend() {
  const context = by('ramp').getContext('2d');
  for (let x = 0; x < 256; x++) {
    context.fillStyle = `rgb(${ramp((x / 255) ** 2)})`;
    context.fillRect(x, 0, 1, 1);
  }
  by('ticks').replaceChildren(...TICKS.map((tick) => {
    const label = element('span', tick === 100 ? '100 %' : tick);
    label.style.left = `${Math.sqrt(tick / 100) * 100}%`;
    return label;
  }));
}

// Chips that can be chosen are one stop of the tab key; the arrows go from one to the next.
function chips(box, texts, choose) {
  box.replaceChildren(...texts.map((text, i) => {
    const button = element(choose ? 'button' : 'span', text);
    button.append(element('span', '', 'weight'));
    if (!choose) return button;
    button.type = 'button';
    for (const event of ['pointerenter', 'focus', 'click']) {
      button.addEventListener(event, () => choose(i, event));
    }
    button.addEventListener('keydown', (event) => {
      const next = {
        ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1,
        Home: 0, End: texts.length - 1,
      }[event.key];
      if (next === undefined) return;
      event.preventDefault();  // The page stays where it is.
      box.children[next]?.focus();
    });
    return button;
  }));
}

// Marks the chosen chip, or shades the chips by weight.
function mark(box, chosen, weightOf) {
  [...box.children].forEach((button, i) => {
    const pressed = i === chosen;
    button.setAttribute('aria-pressed', pressed);
    button.tabIndex = pressed || (chosen === null && i === 0) ? 0 : -1;
    const weight = weightOf?.(i);
    if (weight === undefined) button.removeAttribute('style'); else shade(button, weight);
    button.lastChild.textContent = weight === undefined ? '' : percent(weight);
  });
}

const numbers = (count) => [...Array(count).keys()].map((each) => [each, each]);

// Gives a select element its options.
function fill(box, choices) {
  box.replaceChildren(...choices.map(([value, text]) => {
    const option = element('option', text);
    option.value = value;
    return option;
  }));
}
