"""Change logits with a function of one's own: here, no letter e."""

import argparse

import numpy as np

import pagewheel
from pagewheel.default_model import default_model


class Without:
    """Bans every token that has one of the letters."""

    def __init__(self, tokenizer: pagewheel.Tokenizer, letters: str) -> None:
        vocabulary = tokenizer.get_vocab_vector()
        self.banned = np.array(
            [i for i, text in enumerate(vocabulary) if set(letters) & set(text)], dtype=np.int64
        )

    def __call__(self, token_ids: np.ndarray, logits: np.ndarray) -> None:
        """`token_ids` are the prompt's and what was generated; `logits` are changed in place."""
        logits[self.banned] = -np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--prompt", default="Write about the sea.")
    parser.add_argument("--letters", default="eE", help="that no word may have")
    arguments = parser.parse_args()

    pipe = pagewheel.LLMPipeline(str(arguments.model or default_model()), "CPU")
    config = pagewheel.GenerationConfig(max_new_tokens=40)
    config.logits_processors = [Without(pipe.get_tokenizer(), arguments.letters)]
    text = str(pipe.generate(arguments.prompt, config))
    print(text)
    left = sum(text.count(letter) for letter in arguments.letters)
    print(f"{left} times one of {arguments.letters!r} in {len(text)} characters")


if __name__ == "__main__":
    main()
