"""docs_examples.py: runs every command of a page's ```console blocks and compares what it prints with what the page says. Arguments:
the kvstep binary and pages. A line that begins with "$ " is a command, "> " goes on with it, all others are its output; … alone on a
line stands for any number of lines. A page's commands run in order in one empty folder, with traces/ and examples/ in it. How fast
`kvstep run` was, which it says on stderr, is no part of the answer."""
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile


def examples(path):
    """(command, expected lines) of each command on the page."""
    inside, command, expected = False, None, []
    with open(path, encoding="utf-8") as page:
        for line in page.read().split("\n"):
            if line == "```console":
                inside = True
            elif inside and (line == "```" or line.startswith("$ ")):
                if command is not None:
                    yield command, expected
                command, expected = (line[2:], []) if line.startswith("$ ") else (None, [])
                inside = line != "```"
            elif inside and command is not None and line.startswith("> ") and not expected:
                command += "\n" + line[2:]
            elif inside:
                expected.append(line)


def furnish(folder, kvstep):
    """kvstep and python3 are the ones under test, whatever they are called and whatever else is installed."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.symlink(os.path.abspath(kvstep), os.path.join(folder, "kvstep"))
    with open(os.path.join(folder, "python3"), "w", encoding="utf-8") as wrapper:  # a link would lose a virtual environment
        wrapper.write(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -B \"$@\"\n")
    os.chmod(wrapper.name, 0o755)
    for name in ("traces", "examples"):
        os.symlink(os.path.join(root, name), os.path.join(folder, name))
    return dict(os.environ, LC_ALL="C.UTF-8", PATH=folder + os.pathsep + os.environ["PATH"])


def answer(command, folder, environment):
    """The lines that it prints."""
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = re.sub(r"^kvstep: \d+ prompt tokens? .* tokens/s.*\n", "", done.stdout.decode("utf-8", "replace"), flags=re.M)
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


def agrees(expected, printed):
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line) + r"\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def main(kvstep, pages):
    number = failed = 0
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            environment = furnish(folder, kvstep)
            for command, expected in examples(page):
                number += 1
                printed = answer(command, folder, environment)
                good = agrees(expected or [""], printed)
                failed += not good
                first = command.split("\n")[0]
                print(f"{'ok' if good else 'not ok'} {number} - {os.path.basename(page)}: {first}")
                if not good:
                    print("\n".join(difflib.unified_diff(expected, printed, "the page", "printed", lineterm="")))
    if number == 0:
        print("not ok 1 - there is no example on these pages")
        failed = 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
