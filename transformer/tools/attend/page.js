const data = JSON.parse(document.getElementById('data').textContent);
const by = (id) => document.getElementById(id);
const KINDS = {
  cross: {
    name: 'Cross-attention', queries: 'To write', keys: 'it looks at the source',
    note: 'To write each token of the translation, the decoder looks at the source.',
  },
  encoder: {
    name: 'Encoder self-attention', queries: 'To encode', keys: 'it looks at the source',
    note: 'To encode each token of the source, the encoder looks at all of it.',
  },
  decoder: {
    name: 'Decoder self-attention', queries: 'To write', keys: 'it looks at what it has written',
    note: 'To write each token, the decoder looks at where it began, <s>, and at what it has ' +
        'written before.',
  },
};
const WIDEST = 1040, TALLEST = 760, LARGEST_CELL = 30, SMALLEST_LABEL = 8;

// What is chosen; the part of the address after # has the same names.
const state = {
  sentence: 0, kind: 'cross', layer: data.layers - 1, head: 0, query: 0, word: 'target0',
  heads: 'all', token: 'all',  // Whose lines are drawn: heads, such as '0 2', and one query.
};
let weights, offsets, ramp;

function element(tag, text, classes = '') {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = classes;
  return made;
}

const depth = (kind) => kind === 'encoder' ? data.encoderLayers : data.layers;
const percent = (weight) => `${(100 * weight).toFixed(1)}\u00a0%`;

// Rows are queries, columns are keys; the decoder's keys are what it has read when it writes.
function tokens(kind) {
  const {source, target} = data.sentences[state.sentence];
  const read = ['<s>', ...target.slice(0, -1)];
  return {
    rows: kind === 'encoder' ? source : target,
    columns: kind === 'decoder' ? read : source,
  };
}

function attention(kind, layer, head) {
  const {rows, columns} = tokens(kind);
  const size = rows.length * columns.length;
  const start = offsets[kind] + (layer * data.heads + head) * size;
  const cells = weights.subarray(start, start + size);
  return {
    rows, columns, cells,
    at: (row, column) => cells[row * columns.length + column] / data.precision,
  };
}

// The mean over heads of what the pieces of a target word give to those of a source word.
function wordWeight(target, source) {
  const layer = Math.min(state.layer, data.layers - 1);
  let sum = 0;
  for (let head = 0; head < data.heads; head++) {
    const {at} = attention('cross', layer, head);
    for (let row = target[1]; row < target[2]; row++) {
      for (let column = source[1]; column < source[2]; column++) sum += at(row, column);
    }
  }
  return sum / data.heads / (target[2] - target[1]);
}

// Base64 of deflated 16-bit numbers, encoder, decoder and cross one after the other.
async function decode(sentence) {
  const bytes = Uint8Array.from(atob(sentence.weights), (each) => each.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint16Array(await new Response(stream).arrayBuffer());
}

function drawWords() {
  const {sourceWords, targetWords} = data.sentences[state.sentence];
  const [, side, number] = state.word.match(/^(source|target)(\d+)$/) ?? ['', 'target', 0];
  const chosen = Math.min(number, (side === 'source' ? sourceWords : targetWords).length - 1);
  const from = side === 'source';
  mark(by('source-words'), from ? chosen : null,
      from ? undefined : (i) => wordWeight(targetWords[chosen], sourceWords[i]));
  mark(by('target-words'), from ? null : chosen,
      from ? (i) => wordWeight(targetWords[i], sourceWords[chosen]) : undefined);
  by('words-note').textContent = 'Point at a word. The weights are those of cross-attention, ' +
      `the mean of ${data.heads} heads of layer ${Math.min(state.layer, data.layers - 1)}.`;
}

function drawGrid() {
  const room = Math.min(WIDEST, document.body.clientWidth - 90);
  const {rows, columns} = tokens(state.kind);
  const width = Math.max(16, Math.min(96, Math.floor(room / data.heads) - 6));
  const height = Math.round(width * Math.max(.5, Math.min(2, rows.length / columns.length)));
  const grid = by('grid');
  grid.style.gridTemplateColumns = `max-content repeat(${data.heads}, ${width}px)`;
  grid.replaceChildren(element('span', ''));
  for (let head = 0; head < data.heads; head++) grid.append(element('span', `head ${head}`));
  fill(by('layer'), numbers(depth(state.kind)));
  for (let layer = 0; layer < depth(state.kind); layer++) {
    grid.append(element('span', `layer ${layer}`));
    for (let head = 0; head < data.heads; head++) {
      const button = element('button', '');
      button.type = 'button';
      button.style.height = `${height}px`;
      button.setAttribute('aria-label', `Layer ${layer}, head ${head}`);
      button.addEventListener('click', () => show({layer, head}));
      const canvas = button.appendChild(document.createElement('canvas'));
      paint(canvas, attention(state.kind, layer, head));
      grid.append(button);
    }
  }
}

function drawMap() {
  const {rows, columns, cells} = attention(state.kind, state.layer, state.head);
  const room = Math.min(WIDEST, document.body.clientWidth - 150);
  const cell = Math.max(3, Math.min(LARGEST_CELL, Math.floor(room / columns.length),
      Math.max(SMALLEST_LABEL + 3, Math.floor(TALLEST / rows.length))));
  const big = by('big');
  paint(big, {rows, columns, cells});
  big.style.width = `${cell * columns.length}px`;
  big.style.height = `${cell * rows.length}px`;
  for (const [id, texts, across] of [['rows', rows, 'height'], ['columns', columns, 'width']]) {
    by(id).style.fontSize = `${Math.min(13, cell - 1)}px`;
    by(id).replaceChildren(...texts.map((text) => {
      const label = element('span', cell < SMALLEST_LABEL ? '' : text);
      label.style.lineHeight = label.style[across] = `${cell}px`;
      return label;
    }));
  }
  by('row').style.height = `${cell + 4}px`;
  const title = `${KINDS[state.kind].name}, layer ${state.layer}, head ${state.head}`;
  by('tokens-title').textContent = by('map-title').textContent = title;
  by('map-note').textContent = 'A row for each token that looks, a column for each that is ' +
      'looked at. Point at a cell for its weight.';
  by('tokens-note').textContent = `${KINDS[state.kind].note} Point at a token, or move with ` +
      'the arrow keys.';
  by('queries-title').textContent = KINDS[state.kind].queries;
  by('keys-title').textContent = KINDS[state.kind].keys;
  chips(by('queries'), rows, (query) => show({query}));
  chips(by('keys'), columns);
  [...by('grid').querySelectorAll('button')].forEach((button, i) => {
    button.setAttribute('aria-pressed', i === state.layer * data.heads + state.head);
  });
}

function drawQuery(column) {
  const {rows, columns, at} = attention(state.kind, state.layer, state.head);
  mark(by('queries'), state.query);
  mark(by('keys'), null, (i) => at(state.query, i));
  const order = columns.map((_, i) => i).filter((i) => at(state.query, i) > 0).sort(
      (a, b) => at(state.query, b) - at(state.query, a)).slice(0, 5);
  const parts = (column === undefined ? order : [column]).flatMap((i) => [
    element('b', columns[i]), ` ${percent(at(state.query, i))}, `]);
  parts.push(parts.pop().slice(0, -2));
  by('readout').replaceChildren(element('b', rows[state.query]), ' → ', ...parts);
  [...by('rows').children].forEach((label, i) => {
    label.setAttribute('aria-current', i === state.query);
  });
  by('row').style.top = `${by('big').clientHeight / rows.length * state.query - 2}px`;
}

// Keeps what was chosen within what there is.
function clamp() {
  const below = (name, count) => {
    state[name] = Math.max(0, Math.min(count - 1, Math.trunc(state[name]) || 0));
  };
  if (!Object.hasOwn(KINDS, state.kind)) state.kind = 'cross';
  below('sentence', data.sentences.length);
  below('layer', depth(state.kind));
  below('head', data.heads);
  below('query', tokens(state.kind).rows.length);
  const heads = headsOfLines();
  state.heads = heads.length === data.heads ? 'all' : heads.join(' ');
  const token = Number.parseInt(state.token, 10);
  state.token = token in tokens(state.kind).rows ? token : 'all';
}

// Takes changes of the state, and draws what they change; all of it without any.
async function show(changes) {
  const sentenceBefore = state.sentence;
  Object.assign(state, changes);
  clamp();
  const changed = (...names) => !changes || names.some((name) => name in changes);
  if (!changes || state.sentence !== sentenceBefore) {
    const wanted = state.sentence;
    const found = await decode(data.sentences[wanted]);
    if (state.sentence !== wanted) return;  // Another was chosen meanwhile.
    weights = found;
    const {source, target, sourceWords, targetWords} = data.sentences[wanted];
    const decoder = data.encoderLayers * data.heads * source.length ** 2;
    const cross = decoder + data.layers * data.heads * target.length ** 2;
    offsets = {encoder: 0, decoder, cross};
    for (const [side, words] of [['source', sourceWords], ['target', targetWords]]) {
      chips(by(`${side}-words`), words.map(([text]) => text),
          (i) => show({word: `${side}${i}`}));
    }
  }
  if (changed('sentence', 'kind')) drawGrid();
  if (changed('sentence', 'kind', 'layer', 'head')) drawMap();
  if (changed('sentence', 'layer', 'word')) drawWords();
  if (changed('sentence', 'kind', 'layer', 'head', 'query')) drawQuery();
  if (changed('sentence', 'kind', 'layer', 'heads')) drawLines();
  if (changed('sentence', 'kind', 'layer', 'heads', 'token')) drawLinesOf();
  for (const name of ['sentence', 'kind', 'layer', 'head']) by(name).value = state[name];
  history.replaceState(null, '', `#${new URLSearchParams(state)}`);
}

function fromAddress() {
  return Object.fromEntries([...new URLSearchParams(location.hash.slice(1))].filter(
      ([name]) => Object.hasOwn(state, name)));
}

function drawAll() {
  readRamp();
  drawLegend();
  return show();
}

function start() {
  const options = {
    sentence: data.sentences.map(({sourceWords}, i) => [
      i, `${i + 1}: ${sourceWords.slice(0, -1).map(([text]) => text).join(' ')}`]),
    kind: Object.entries(KINDS).map(([kind, {name}]) => [kind, name]),
    layer: [], head: numbers(data.heads),
  };
  for (const [name, choices] of Object.entries(options)) {
    fill(by(name), choices);
    by(name).addEventListener('change', ({target}) => show({[name]: target.value}));
  }
  by('heads').prepend(...numbers(data.heads).map(([head]) => {
    const label = element('label', '');
    const box = label.appendChild(document.createElement('input'));
    box.type = 'checkbox';
    box.addEventListener('change', () => show({heads: headsOfLines().filter(
        (each) => each !== head).concat(box.checked ? head : []).join(' ')}));
    const sample = drawing('svg');
    sample.append(lineOfHead(head, {x1: 0, y1: '50%', x2: '100%', y2: '50%', 'stroke-width': 4}));
    label.append(sample, `head ${head}`);
    return label;
  }));
  by('all-heads').addEventListener('click', () => show({heads: 'all'}));
  by('no-heads').addEventListener('click', () => show({heads: ''}));
  for (const event of ['pointerleave', 'focusout']) {
    by('lines-queries').addEventListener(event, () => drawLinesOf());
  }
  by('chooser').hidden = data.sentences.length === 1;
  by('choices').addEventListener('submit', (event) => event.preventDefault());
  by('about').textContent = data.about;
  by('big').addEventListener('pointermove', ({offsetX, offsetY, target}) => {
    const {rows, columns} = tokens(state.kind);
    const place = (offset, length, count) => Math.max(0, Math.min(
        count - 1, Math.floor(offset / length * count)));
    const query = place(offsetY, target.clientHeight, rows.length);
    if (query !== state.query) show({query});
    drawQuery(place(offsetX, target.clientWidth, columns.length));
  });
  addEventListener('resize', () => weights && show());
  addEventListener('hashchange', () => show({...state, ...fromAddress()}));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
  Object.assign(state, fromAddress());
  drawAll();
}

start();
