"""Plots the figures of inside.md from the values that its Python code computes; see figures.py."""

import numpy as np
from matplotlib.figure import Figure


def logit_lens(page) -> Figure:
  """Returns a figure of each decoder layer's most likely next tokens and their probabilities."""
  layers = page['lens']
  columns = page['pieces'](page['target'])
  best_LT = np.array([p_TN.argmax(-1) for p_TN in layers.values()])
  chances_LT = np.array([p_TN.max(-1) for p_TN in layers.values()])
  figure = Figure(figsize=(10, 2.4), layout='constrained')
  place = figure.subplots()
  place.imshow(chances_LT[::-1], cmap='Blues', vmin=0, vmax=1, aspect='auto')
  place.set_yticks(range(len(layers)), list(layers)[::-1])
  place.set_xticks(range(len(columns)), columns)
  place.set_xlabel('next token')
  for (row, column), chance in np.ndenumerate(chances_LT):
    place.text(
      column,
      len(layers) - 1 - row,
      page['vocabulary'].piece(int(best_LT[row, column])),
      ha='center',
      va='center',
      fontsize=8,
      color='white' if chance > 0.6 else 'black',
    )
  return figure


def saliency(page) -> Figure:
  """Returns a figure of the gradient's norm per token, of a right and of a wrong translation."""
  figure = Figure(figsize=(10, 3), layout='constrained')
  sides = (
    ('source', page['saliency_BS'], [page['source']] * 2, False),
    ("decoder's input", page['saliency_BT'], [page['target'], page['wrong']], True),
  )
  for place, (title, lengths, texts, shifted) in zip(
    figure.subplots(1, 2, sharey=True), sides, strict=True
  ):
    names = page['pieces'](texts[1])
    if shifted:
      names = ['<s>', *names[:-1]]
    for row, label in enumerate(('right translation', 'wrong translation')):
      bars = np.arange(len(names)) + 0.4 * (row - 0.5)
      place.bar(bars, lengths[row, : len(names)], width=0.4, label=label)
    place.set_xticks(range(len(names)), names, rotation=90)
    place.set_title(title)
  place.legend(fontsize=8)
  return figure


def sentence_similarity(page) -> Figure:
  """Returns a figure of the cosine similarities between sentences."""
  sentences = page['sentences']
  figure = Figure(figsize=(8, 4.2), layout='constrained')
  place = figure.subplots()
  image = place.imshow(page['cosines_BB'], cmap='RdBu_r', vmin=-1, vmax=1)
  place.set_xticks(range(len(sentences)), range(1, len(sentences) + 1))
  names = [f'{text} {number}' for number, text in enumerate(sentences, 1)]
  place.set_yticks(range(len(sentences)), names)
  figure.colorbar(image, ax=place)
  return figure


def positions(page) -> Figure:
  """Returns a figure of each encoder head's mean attention weight by distance, by layer."""
  weights_LHO, reach = page['weights_LHO'], page['reach']
  figure = Figure(figsize=(10, 2.4), layout='constrained')
  places = np.atleast_1d(figure.subplots(1, len(weights_LHO)))
  for layer, place in enumerate(places):
    image = place.imshow(weights_LHO[layer], cmap='Blues', vmin=0, aspect='auto')
    place.set_xticks(range(2 * reach + 1), range(-reach, reach + 1))
    place.set_yticks(range(len(weights_LHO[layer])))
    place.set(title=f'layer {layer}', xlabel='distance', ylabel='head')
    figure.colorbar(image, ax=place)
  return figure
