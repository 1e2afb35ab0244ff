"""Chooses the held-out words of the reverse model: heldout.txt."""
import random
import sys

import reverse

WORDS = "/usr/share/dict/american-english"  # Debian: wamerican


def main():
    rng = random.Random(2024)
    lengths = range(reverse.SHORTEST, reverse.LONGEST + 1)
    with open(WORDS, encoding="utf-8") as f:
        english = [w for w in f.read().split() if len(w) in lengths
                   and all(c in reverse.LETTERS for c in w)]
    chosen = rng.sample(english, 1000)
    while len(chosen) < 2000:
        n = rng.choice(lengths)
        word = "".join(rng.choice(reverse.LETTERS) for _ in range(n))
        if word not in chosen:
            chosen.append(word)
    with open(f"{sys.argv[1]}/heldout.txt", "w", encoding="ascii") as f:
        f.write("\n".join(chosen) + "\n")


if __name__ == "__main__":
    main()
