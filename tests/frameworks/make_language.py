"""Writes a small Llama, a tokenizer that knows sixty words, and 400 texts. Argument: directory."""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = [f"w{n}" for n in range(60)]
data = Path(sys.argv[1])
names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
known = {word: number for number, word in enumerate([*names.values(), *WORDS])}
tokenizer = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="</s>", **names)
fast.save_pretrained(data / "model")
sizes = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(known), **sizes, **layers))
model.save_pretrained(data / "model")
(data / "texts").mkdir()
texts = (" ".join(WORDS[n * k % 60] for k in range(1, 17)) for n in range(400))
rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
(data / "texts" / "train.jsonl").write_text(rows)
