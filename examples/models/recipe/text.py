"""Gets Jane Austen's six novels as plain paragraphs, split into training and
validation text.

The novels come from the R package janeaustenr (Debian: r-cran-janeaustenr), which
holds the Project Gutenberg texts as lines of about 70 characters.
"""
import re
import subprocess

# One book after the other, always in this order: the token stream must not depend
# on how R happens to sort.
BOOKS = ["sensesensibility", "prideprejudice", "mansfieldpark", "emma",
         "northangerabbey", "persuasion"]
HELD_OUT = 0.05  # the last part of each novel, never trained on


def lines_of(book):
    out = subprocess.run(
        ["Rscript", "--vanilla", "-e", f"writeLines(janeaustenr::{book})"],
        check=True, capture_output=True)
    return out.stdout.decode("utf-8").split("\n")


def paragraphs(lines):
    """Joins wrapped lines: one paragraph per item, blank lines are the borders."""
    text = "\n".join(line.strip() for line in lines)
    # A modern publisher's note at the end of one novel; not by Austen.
    text = text.split("\nA NOTE ON THE TEXT\n")[0]
    # Gutenberg writes _italics_ like this; the marks would be noise to the model.
    text = text.replace("_", "")
    found = []
    for part in re.split(r"\n\s*\n", text):
        # any run of blanks and line ends becomes one blank (three of the novels
        # have two blanks after a full stop, three have one)
        part = " ".join(part.split())
        if part:
            found.append(part)
    return found


def novels():
    """Returns (training text, validation text); paragraphs end with one newline."""
    train, valid = [], []
    for book in BOOKS:
        parts = paragraphs(lines_of(book))
        total = sum(len(p) + 1 for p in parts)
        seen = 0
        for p in parts:
            # whole paragraphs only: none is half seen in training
            (train if seen < total * (1 - HELD_OUT) else valid).append(p + "\n")
            seen += len(p) + 1
    return "".join(train), "".join(valid)


if __name__ == "__main__":
    a, b = novels()
    print(len(a), "characters for training,", len(b), "for validation")
    print(b[:500])
