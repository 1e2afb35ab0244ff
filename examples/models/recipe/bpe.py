"""Byte-level byte pair encoding as in GPT-2: training, encoding, decoding, files."""
import json
from collections import Counter, defaultdict

import regex

# GPT-2's pattern: text is cut into these pieces first, merges never cross a border.
PATTERN = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|"
                        r" ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def byte_alphabet():
    """GPT-2's table byte -> visible character, in vocabulary order.

    Bytes that print as themselves stand for themselves; the others (blanks, control
    characters, half of Latin-1's extras) borrow characters from U+0100 upwards, so
    that a vocabulary file never holds an invisible symbol: blank is Ġ, newline Ċ.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in plain}
    spare = 0x100
    for b in range(256):
        if b not in table:
            table[b] = chr(spare)
            spare += 1
    return table


BYTE_TO_CHAR = byte_alphabet()
CHAR_TO_BYTE = {c: b for b, c in BYTE_TO_CHAR.items()}


def pieces(text):
    for piece in PATTERN.findall(text):
        yield "".join(BYTE_TO_CHAR[b] for b in piece.encode("utf-8"))


def train(text, n_merges):
    """Learns n_merges merges; returns them as a list of (left, right).

    Each round merges the pair that occurs most often.  Of equally frequent pairs the
    alphabetically first one wins, so that the result depends on the text alone.
    """
    words = Counter(pieces(text))
    split = {w: list(w) for w in words}
    count = Counter()
    where = defaultdict(set)  # pair -> words it was seen in
    for w, n in words.items():
        for pair in zip(split[w], split[w][1:]):
            count[pair] += n
            where[pair].add(w)
    merges = []
    while len(merges) < n_merges:
        best = min(count, key=lambda pair: (-count[pair], pair))
        merges.append(best)
        for w in where.pop(best):
            old = split[w]
            new = merge(old, best)
            if len(new) == len(old):
                continue  # an earlier merge already took this pair apart
            for pair in zip(old, old[1:]):
                count[pair] -= words[w]
            for pair in zip(new, new[1:]):
                count[pair] += words[w]
                where[pair].add(w)
            split[w] = new
        del count[best]
    return merges


def merge(symbols, pair):
    """Joins every occurrence of pair, from left to right."""
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Tokenizer:
    def __init__(self, vocab, merges):
        self.vocab = vocab  # symbol -> id
        self.symbols = {i: s for s, i in vocab.items()}
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.merges = merges
        self.cache = {}

    def encode_piece(self, piece):
        symbols = list(piece)
        while len(symbols) > 1:
            pair = min(zip(symbols, symbols[1:]),
                       key=lambda p: self.rank.get(p, len(self.rank)))
            if pair not in self.rank:
                break
            symbols = merge(symbols, pair)
        return [self.vocab[s] for s in symbols]

    def encode(self, text):
        ids = []
        for piece in pieces(text):
            if piece not in self.cache:
                self.cache[piece] = self.encode_piece(piece)
            ids += self.cache[piece]
        return ids

    def decode(self, ids):
        data = bytes(CHAR_TO_BYTE[c] for i in ids for c in self.symbols[int(i)])
        return data.decode("utf-8", errors="replace")

    def save(self, folder):
        with open(f"{folder}/vocab.json", "w", encoding="utf-8") as f:
            json.dump(self.vocab, f, ensure_ascii=False)
            f.write("\n")
        with open(f"{folder}/merges.txt", "w", encoding="utf-8") as f:
            f.write("#version: 0.2\n")
            f.writelines(f"{a} {b}\n" for a, b in self.merges)


def from_text(text, size):
    """A tokenizer with the 256 bytes and size - 256 merges learned from text."""
    merges = train(text, size - 256)
    symbols = list(BYTE_TO_CHAR.values()) + [a + b for a, b in merges]
    return Tokenizer({s: i for i, s in enumerate(symbols)}, merges)


def load(folder):
    with open(f"{folder}/vocab.json", encoding="utf-8") as f:
        vocab = json.load(f)
    with open(f"{folder}/merges.txt", encoding="utf-8") as f:
        merges = [tuple(line.split()) for line in f.read().split("\n")[1:] if line]
    return Tokenizer(vocab, merges)
