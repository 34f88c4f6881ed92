"""Trains and translates with Hugging Face's Trainer and `generate`, like its users' scripts.

  python huggingface_command.py train TEXT VOCABULARY SOURCE TARGET FOLDER EVERY
  python huggingface_command.py translate MODEL SOURCE_VOCABULARY TARGET_VOCABULARY EXTRA \
      < SOURCE > OUTPUT

MODEL is a checkpoint of the first command, or an export of this project.
"""

import sys
from pathlib import Path

import sentencepiece
import torch
import transformers

# In tokens, EOS included.
_LONGEST = 64
# Sentences in a batch for translation.
_BATCH = 100
# Sentences per training step, about 4,096 tokens of Tatoeba.
_SENTENCES = 320


def padded(rows, value):
  """Returns lists of ids as one array, padded with `value` at the end."""
  return torch.nn.utils.rnn.pad_sequence(
    [torch.tensor(row) for row in rows], batch_first=True, padding_value=value
  )


def train(text, vocabulary, source, target, folder, every):
  """Trains until it is stopped; the model has the size of configs/tatoeba.py:cpu."""
  pieces = sentencepiece.SentencePieceProcessor(model_file=vocabulary)

  def encode(language):
    with open(Path(text, f'train.{language}'), encoding='utf-8', newline='\n') as file:
      lines = [line.rstrip('\r\n') for line in file]
    return [[*ids[: _LONGEST - 1], pieces.eos_id()] for ids in pieces.encode(lines)]

  rows = [
    {'input_ids': ids, 'labels': labels}
    for ids, labels in zip(encode(source), encode(target), strict=True)
  ]

  model = transformers.MarianMTModel(
    transformers.MarianConfig(
      vocab_size=pieces.vocab_size(),
      d_model=128,
      encoder_layers=4,
      decoder_layers=4,
      encoder_ffn_dim=512,
      decoder_ffn_dim=512,
      encoder_attention_heads=4,
      decoder_attention_heads=4,
      dropout=0.1,
      scale_embedding=True,
      pad_token_id=pieces.pad_id(),
      eos_token_id=pieces.eos_id(),
      forced_eos_token_id=None,
      decoder_start_token_id=pieces.pad_id(),
      max_position_embeddings=256,
    )
  )
  model.generation_config.num_beams = 5

  def collate(chosen):
    ids = padded([row['input_ids'] for row in chosen], pieces.pad_id())
    labels = padded([row['labels'] for row in chosen], -100)
    return {
      'input_ids': ids,
      'attention_mask': (ids != pieces.pad_id()).long(),
      'labels': labels,
      'decoder_input_ids': model.prepare_decoder_input_ids_from_labels(labels),
    }

  transformers.Trainer(
    model=model,
    train_dataset=rows,
    data_collator=collate,
    args=transformers.TrainingArguments(
      output_dir=folder,
      use_cpu=True,
      per_device_train_batch_size=_SENTENCES,
      train_sampling_strategy='group_by_length',
      learning_rate=1e-3,
      adam_beta2=0.98,
      lr_scheduler_type='inverse_sqrt',
      warmup_steps=600,
      label_smoothing_factor=0.1,
      num_train_epochs=1000,
      save_steps=int(every),
      save_only_model=True,
      logging_steps=int(every),
      report_to='none',
    ),
  ).train()


def translate(model, source_vocabulary, target_vocabulary, extra):
  """Reads standard input, writes standard output, with the search that the model's folder names.

  A translation has at most `extra` more tokens than the longest source of its batch.
  """
  source, target = (
    sentencepiece.SentencePieceProcessor(model_file=path)
    for path in (source_vocabulary, target_vocabulary)
  )
  model = transformers.AutoModelForSeq2SeqLM.from_pretrained(model).eval()
  sys.stdin.reconfigure(encoding='utf-8', newline='\n')
  lines = [line.rstrip('\n') for line in sys.stdin]
  longest = model.config.max_position_embeddings
  rows = [[*ids[: longest - 1], source.eos_id()] for ids in source.encode(lines)]
  order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
  found = [''] * len(rows)
  for first in range(0, len(order), _BATCH):
    chosen = order[first : first + _BATCH]
    ids = padded([rows[number] for number in chosen], source.pad_id())
    # BOS counts. The score is the log-probability divided by n^α; this project and JoeyNMT divide
    # by ((5 + n) / 6)^α. So the same α favors long translations more here.
    results = model.generate(
      input_ids=ids,
      attention_mask=(ids != source.pad_id()).long(),
      max_length=1 + ids.shape[1] + int(extra),
    )
    for number, result in zip(chosen, results.tolist(), strict=True):
      found[number] = target.decode(result)
  sys.stdout.writelines(line + '\n' for line in found)


if __name__ == '__main__':
  {'train': train, 'translate': translate}[sys.argv[1]](*sys.argv[2:])
