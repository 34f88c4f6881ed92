// Lines between tokens for several heads, laid over one another; part of page.js.

// Colors of Okabe and Ito, which color-blind readers can tell apart too.
const COLORS = ['#0072b2', '#e69f00', '#009e73', '#d55e00', '#cc79a7', '#56b4e9',
  'light-dark(#000, #f0e442)'];
const FAINTEST_LINE = .02, LINE_ROW = 24, SMALLEST_LINE_ROW = 12;

const drawing = (tag) => document.createElementNS(by('lines').namespaceURI, tag);

const headsOfLines = () => numbers(data.heads).map(([head]) => head).filter(
    (head) => state.heads === 'all' || state.heads.split(' ').includes(String(head)));

// A line in the color of a head; the colors come again with shorter and shorter dashes.
function lineOfHead(head, attributes) {
  const line = drawing('line');
  const round = Math.floor(head / COLORS.length);
  line.style.stroke = COLORS[head % COLORS.length];
  if (round) line.setAttribute('stroke-dasharray', `${8 / round} 3`);
  Object.entries(attributes).forEach(([name, value]) => line.setAttribute(name, value));
  return line;
}

// Lines of several heads; those between the same two tokens lie side by side.
function drawLines() {
  const {rows, columns} = tokens(state.kind);
  const heads = headsOfLines();
  const maps = heads.map((head) => attention(state.kind, state.layer, head));
  const tall = Math.max(SMALLEST_LINE_ROW, Math.min(
      LINE_ROW, Math.floor(TALLEST / Math.max(rows.length, columns.length))));
  const width = Math.min(3, .8 * tall / heads.length);
  by('figure').style.setProperty('--row', `${tall}px`);
  by('lines').replaceChildren(...rows.map((_, row) => {
    const group = drawing('g');
    maps.forEach(({at}, i) => {
      const middle = tall / 2 + width * (i - (heads.length - 1) / 2);
      group.append(...columns.map((_, column) => column).filter(
          (column) => at(row, column) >= FAINTEST_LINE).map((column) => lineOfHead(heads[i], {
            x1: 0, y1: row * tall + middle, x2: '100%', y2: column * tall + middle,
            'stroke-width': width, 'stroke-opacity': at(row, column),
          })));
    });
    return group;
  }));
  by('lines-title').textContent =
      `${KINDS[state.kind].name}, layer ${state.layer}, several heads`;
  by('lines-queries-title').textContent = KINDS[state.kind].queries;
  by('lines-keys-title').textContent = KINDS[state.kind].keys;
  chips(by('lines-queries'), rows, (token, event) => event === 'click' ?
      show({token: token === state.token ? 'all' : token}) : drawLinesOf(token));
  chips(by('lines-keys'), columns);
  [...by('heads').querySelectorAll('input')].forEach((box, head) => {
    box.checked = heads.includes(head);
  });
}

// Shows only the lines of the token that is pointed at or chosen, or all lines.
function drawLinesOf(token = state.token) {
  mark(by('lines-queries'), state.token === 'all' ? null : state.token);
  [...by('lines').children].forEach((group, i) => {
    group.style.display = token === 'all' || token === i ? '' : 'none';
  });
  const {rows, columns} = tokens(state.kind);
  by('lines-readout').replaceChildren(...token === 'all' ? [] : [
    element('b', rows[token]), ' → ', ...headsOfLines().flatMap((head, i) => {
      const {at} = attention(state.kind, state.layer, head);
      const best = columns.reduce((most, _, i) => at(token, i) > at(token, most) ? i : most, 0);
      return [`${i ? ', ' : ''}head ${head}: `, element('b', columns[best]),
        ` ${percent(at(token, best))}`];
    })]);
}
