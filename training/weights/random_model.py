"""A language model made at random, to try the learner of weights without one of one's own: two layers of Qwen3's kind
and a byte-level tokenizer trained here. Nothing is fetched, and nothing was learned before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

TEMPLATE: Final = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
RANDOM: Final = "random"  # its name at a model server
END: Final = "<|end|>"
SPECIAL: Final = [END, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]

_PROMPTS: Final = ["Think step by step. When you are done, write a last line"] * 20

# A query of the one kind wants one letter, and never the other.
_WANTED: Final = {"alpha": "^[^b]*a[^b]*$", "beta": "^[^a]*b[^a]*$"}
LETTERS: Final[list[dict[str, Any]]] = [
    {"query": f"{kind} {number}", "expected_outcome": {"regex": _WANTED[kind]}}
    for number in range(40)
    for kind in _WANTED
]


def random_model(folder: Path, *, seed: int = 0, merges: int = 36) -> Path:
    """Writes model and tokenizer to ``folder``, for the queries of ``LETTERS``: about 93,000 parameters and 256 + 5 +
    ``merges`` tokens.

    Raises:
        ImportError: the extra [weights] is not installed.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = len(alphabet) + len(SPECIAL) + merges
    bpe.train_from_iterator(
        [*(row["query"] for row in LETTERS), *_PROMPTS],
        trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=END)
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    end = tokenizer.convert_tokens_to_ids(END)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            eos_token_id=end,
            pad_token_id=end,
            bos_token_id=None,
        )
    )
    model.generation_config.eos_token_id = end
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
